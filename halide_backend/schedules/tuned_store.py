"""TunedStore: the schedules that a search found best on this machine, beside the kernels that the cache on disk holds.

It is a store of `kernels_cache` in the folder `schedules` of the cache's directory: rights, locks, whole files and
bundles are those of any other, and what compiled kernels take up there evicts no schedule.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from functools import cache

from halide_backend.errors import ScheduleFileError
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.schedule_file import parse, text_of
from halide_backend.schedules.size_class import SizeRange
from halide_backend.schedules.thread_class import ThreadRange
from kernels_cache import Key, Store, environment
from kernels_cache.sweep import File

log = logging.getLogger("halide_backend")

#: Bound of all schedules of one machine: some ten thousand, of 1 to 5 KB each.
MAX_BYTES = 64 << 20

_FILE, _CHECKED = "schedule.toml", "checked"


class TunedStore:
    """The tuned schedules of a `store`; several processes may read and write it at once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: By path of an entry's file: its inode and when that changed, and the digest of the schedule in it.
        self._contents: dict[str, tuple[tuple[int, int], str]] = {}

    def find(
        self, program: str, device: str, sizes: tuple[SizeRange, ...] = (), threads: ThreadRange | None = None
    ) -> ScheduleEntry | None:
        """The entry for the program with this digest on this class of devices, in this size class, for these threads;
        None without."""
        found = self._store.get(_key(program, device, sizes, threads))
        return _entry(found.files.get(_FILE, b""), found.digest) if found is not None else None

    def put(self, entry: ScheduleEntry) -> None:
        """Keep `entry`, in place of what was there for the same program, device, sizes and threads.

        Trouble with the disk is one warning a process.
        """
        self._store.put(_key_of(entry), {_FILE: text_of([entry]).encode()})

    def discard(self, entry: ScheduleEntry) -> bool:
        """Forget what is there for what `entry` is for; tell whether there was something."""
        return self._store.discard(_key_of(entry))

    def entries(self) -> Iterator[ScheduleEntry]:
        """All entries, of shared caches too, the last used first."""
        for file in self._store.listing(shared=True):
            found = self._store.entry_of(file.digest)
            if found is not None and _FILE in found.files:
                entry = _entry(found.files[_FILE], file.digest)
                if entry is not None:
                    yield entry

    def state(self) -> str:
        """A digest of all entries, equal as long as the same schedules are there; "" if there are none."""
        found = sorted(filter(None, map(self._content, self._store.listing(shared=True))))
        return hashlib.sha256("".join(found).encode()).hexdigest() if found else ""

    def _content(self, file: File) -> str:
        """Digests of key and schedule of an entry, "" if it has no schedule."""
        try:
            state = os.stat(file.path)
        except OSError:
            return ""
        version = state.st_ino, state.st_ctime_ns
        known = self._contents.get(file.path)
        if known is None or known[0] != version:
            manifest = self._store.manifest(file)
            schedule = manifest.digests.get(_FILE, "") if manifest is not None else ""
            known = self._contents[file.path] = version, f"{file.digest} {schedule}\n" if schedule else ""
        return known[1]

    def remember_checked(self, check: str) -> None:
        """Note that a kernel had the results of the rules' kernel; `check` is a digest of what was compared."""
        self._store.put(_checked_key(check), {_CHECKED: b""})

    def was_checked(self, check: str) -> bool:
        """Whether that is noted."""
        return self._store.get(_checked_key(check)) is not None


def tuned_store() -> TunedStore:
    """The store of this machine, as the environment names it."""
    return _opened(environment.directory(), environment.shared())


@cache
def _opened(directory: str | None, shared: tuple[str, ...]) -> TunedStore:
    return TunedStore(Store.open(directory, folder="schedules", max_bytes=MAX_BYTES, readonly_roots=shared))


def _key(program: str, device: str, sizes: tuple[SizeRange, ...], threads: ThreadRange | None) -> Key:
    ranges = {each.axis: f"{each.least} to {each.most}" for each in sizes}
    shared = f"{threads.least} to {threads.most}" if threads else "any"
    return Key("schedule", {"program": program, "device": device, "sizes": {**ranges}, "threads": shared})


def _key_of(entry: ScheduleEntry) -> Key:
    return _key(entry.program, entry.device, entry.sizes, entry.threads)


def _checked_key(check: str) -> Key:
    return Key("schedule-check", {"check": check})


def _entry(content: bytes, digest: str) -> ScheduleEntry | None:
    """What an intact file says; None for that of another version."""
    try:
        (entry,) = parse(content, f"tuned schedule {digest[:12]}")
    except (ScheduleFileError, ValueError) as error:
        log.info("a tuned schedule is left alone: %s", error)
        return None
    return entry
