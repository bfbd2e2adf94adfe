"""Keys in, verified entries out: look up, put, and build what is missing exactly once.

The spine of the package. Every public method works the same whatever happens to the disk:
trouble is reported once a process (or raised in strict mode) and the result is still right.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal

from kernels_cache import entry as entries
from kernels_cache import environment, locks, publishing, reading, sweep
from kernels_cache.canonical import Json
from kernels_cache.compatibility import Refusal, refusal
from kernels_cache.entry import Entry
from kernels_cache.errors import CacheTrouble, EntryDamaged
from kernels_cache.key import Key
from kernels_cache.root import Root, default_path
from kernels_cache.statistics import Counter, Statistics
from kernels_cache.trouble import Troubles

DEFAULT_MAX_BYTES = 2 * 1024**3
# The slowest single kernel build seen took seconds; who waits longer is better off building.
LOCK_TIMEOUT_S = 60.0
# Last use is kept to this resolution, so that a warm process writes no metadata.
TOUCH_AFTER_S = 60.0

Reason = Literal["absent", "damaged", "unknown-schema", "refused", "unreadable"]


@dataclass(frozen=True)
class Miss:
    """Why a look-up returned nothing.

    Attributes:
        reason: "absent", "damaged", "unknown-schema", "refused" or "unreadable".
        detail: one sentence for a log.
        refusal: the requirement this machine does not meet, when refused.
    """

    reason: Reason
    detail: str
    refusal: Refusal | None = None


_ABSENT = Miss("absent", "no entry has this key")


class Store:
    """A private directory of entries, and read-only shared ones looked up after it."""

    def __init__(
        self,
        root: Root | None,
        shared: tuple[Root, ...],
        max_bytes: int,
        lock_timeout_s: float,
        strict: bool,
    ) -> None:
        """Use `Store.open`."""
        self.root = root
        self.shared = shared
        self.max_bytes = max_bytes
        self.lock_timeout_s = lock_timeout_s
        self._counter = Counter()
        self._troubles = Troubles(self._counter, strict)
        self._used: dict[str, None] = {}

    @classmethod
    def open(
        cls,
        root: str | os.PathLike[str] | None = None,
        *,
        folder: str = "",
        max_bytes: int = DEFAULT_MAX_BYTES,
        readonly_roots: Iterable[str | os.PathLike[str]] | None = None,
        strict: bool | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> Store:
        """Open a store; nothing is created before the first put.

        Args:
            root: private directory; None for HALIDE_BACKEND_CACHE_DIR, or else "halide_backend"
                in the user's cache directory.
            folder: of each root, where this store is, apart from others; "" for the root itself.
            max_bytes: bound for all files of the private root together.
            readonly_roots: shared directories, looked up in this order after the private one;
                None for HALIDE_BACKEND_CACHE_SHARED. One that is not there holds nothing.
            strict: raise cache trouble instead of warning once; None for
                HALIDE_BACKEND_CACHE_STRICT=1.
            lock_timeout_s: how long to wait for another process that builds the same key.

        Raises:
            CacheTrouble: in strict mode, when the root cannot be used. Otherwise such a store
                finds nothing, keeps nothing, and warns once.
        """
        shared = environment.shared() if readonly_roots is None else readonly_roots
        store = cls(
            None,
            tuple(Root(os.path.join(path, folder), shared=True) for path in shared),
            max_bytes,
            lock_timeout_s,
            environment.strict() if strict is None else strict,
        )
        with store._troubles.tolerated("cannot use the cache directory", str(root or "")):
            private = Root(os.path.join(default_path() if root is None else root, folder))
            private.usable()
            store.root = private
        return store

    @property
    def statistics(self) -> Statistics:
        """What this store did so far in this process."""
        return self._counter.snapshot()

    @property
    def used(self) -> tuple[str, ...]:
        """Digests of all keys that were hit or stored through this object, in order."""
        return tuple(self._used)

    def get(self, key: Key, *, provides: Mapping[str, Json] | None = None) -> Entry | None:
        """Return the verified entry of `key`, or None. `look_up` also tells why."""
        found = self.look_up(key, provides=provides)
        return found if isinstance(found, Entry) else None

    def look_up(self, key: Key, *, provides: Mapping[str, Json] | None = None) -> Entry | Miss:
        """Return the verified entry of `key`, or why there is none. Takes no lock.

        Args:
            key: what is wanted.
            provides: what this machine has; entries that require more are refused. None skips
                the comparison.
        """
        found = self._find(key.digest, provides)
        if isinstance(found, Entry):
            self._counter.add("hits")
            self._used[key.digest] = None
        else:
            self._counter.add("misses")
            if found.refusal is not None:
                self._counter.add("refused")
        return found

    def put(
        self,
        key: Key,
        files: Mapping[str, bytes],
        *,
        requires: Mapping[str, Json] | None = None,
    ) -> Entry:
        """Store files under `key`, replacing what was there, and return them as an entry.

        Raises:
            InvalidEntry: the files or requirements can never be stored.
        """
        made = entries.make(key, files, requires)
        self.publish(made)
        return made

    def publish(self, made: Entry) -> bool:
        """Write an entry to the private root; tell whether it is there now."""
        root = self.root
        if root is None:
            return False
        with self._troubles.tolerated("cannot store an entry", root.path):
            evicted = publishing.publish(root, made.digest, entries.pack(made), self.max_bytes)
            self._counter.add("stored")
            self._counter.add("evicted", len(evicted))
            self._used[made.digest] = None
            return True
        return False

    def get_or_build(
        self,
        key: Key,
        build: Callable[[], Mapping[str, bytes]],
        *,
        requires: Mapping[str, Json] | None = None,
        provides: Mapping[str, Json] | None = None,
    ) -> tuple[Entry, bool]:
        """Return the entry of `key`, building and storing it if need be; and whether it was a hit.

        One process (and thread) builds while the others wait for it. Whatever `build` raises
        propagates unchanged and is never stored.

        Raises:
            InvalidEntry: `build` returned what can never be stored.
        """
        found = self.look_up(key, provides=provides)
        if isinstance(found, Entry):
            return found, True
        with self._single_flight(key.digest) as alone:
            if alone:
                again = self._find(key.digest, provides)
                if isinstance(again, Entry):
                    self._used[key.digest] = None
                    return again, True
            made = entries.make(key, build(), requires)
            self._counter.add("built")
            if alone:
                self.publish(made)
        return made, False

    def discard(self, key: Key) -> bool:
        """Remove the entry of `key` from the private root; tell whether there was one."""
        if self.root is not None:
            with self._troubles.tolerated("cannot remove an entry", self.root.path):
                return publishing.discard(self.root, key.digest)
        return False

    def prune(self, max_bytes: int | None = None, limits: sweep.Limits = sweep.LIMITS) -> sweep.Swept:
        """Clean up after crashes and evict down to `max_bytes` (None: the store's bound)."""
        keep = self.max_bytes if max_bytes is None else max_bytes
        if self.root is not None:
            with self._troubles.tolerated("cannot prune", self.root.path):
                if self.root.usable():
                    done = publishing.prune(self.root, keep, limits)
                    self._counter.add("evicted", len(done.removed))
                    return done
        return sweep.Swept(0, 0, (), 0, 0, 0)

    def verify(self) -> Iterator[tuple[sweep.File, Miss | None]]:
        """Check every byte of every entry of the private root; damaged ones are set aside.

        Yields:
            The entry's file, and None when it is whole.
        """
        for file in self.listing():
            if self.root is not None:
                found = self._read(self.root, file.digest, touch=False, deep=True)
                yield file, found if isinstance(found, Miss) else None

    def listing(self, *, shared: bool = False) -> list[sweep.File]:
        """Return the entries of the private root, or of all roots, most recently used first."""
        found: list[sweep.File] = []
        for root in (self.root, *(self.shared if shared else ())):
            if root is not None:
                with self._troubles.tolerated("cannot list the cache", root.path):
                    found += sweep.entries(root) if root.usable() else ()
        return sorted(found, key=lambda file: -file.used)

    def entry_of(self, digest: str) -> Entry | None:
        """Return the verified entry with this digest from any root, without using it."""
        for root in (self.root, *self.shared):
            found = self._read(root, digest, touch=False, deep=True) if root else _ABSENT
            if isinstance(found, Entry):
                return found
        return None

    def manifest(self, file: sweep.File) -> entries.Manifest | None:
        """Return what a listed entry says about itself, None when it cannot be read."""
        owners = frozenset[int]().union(*(root.owners for root in (self.root, *self.shared) if root is not None))
        with suppress(OSError, EntryDamaged, entries.UnknownSchema):
            return reading.read_manifest(file.path, owners)
        return None

    def _find(self, digest: str, provides: Mapping[str, Json] | None) -> Entry | Miss:
        first: Miss | None = None
        for root in (self.root, *self.shared):
            if root is None:
                continue
            found = self._read(root, digest)
            if isinstance(found, Entry):
                refused = None if provides is None else refusal(found.requires, provides)
                if refused is None:
                    return found
                found = Miss("refused", str(refused), refused)
            # The private root speaks first, but "absent" says less than any other reason.
            if first is None or first.reason == "absent":
                first = found
        return first or _ABSENT

    def _read(self, root: Root, digest: str, *, touch: bool = True, deep: bool = False) -> Entry | Miss:
        path = root.entry(digest)
        try:
            if not root.usable():
                return _ABSENT
            found, used = reading.read_entry(path, digest, root.owners)
            if deep and not entries.authentic(found):
                raise EntryDamaged("the fields of a cache entry are not those of its key", path)
        except FileNotFoundError:
            return _ABSENT
        except entries.UnknownSchema as error:
            return Miss("unknown-schema", f"{path} has schema {error}")
        except EntryDamaged as damage:
            self._set_aside(root, path, damage)
            return Miss("damaged", str(damage))
        except (CacheTrouble, OSError) as error:
            # A network file system says ESTALE when the entry was replaced as we read.
            if isinstance(error, OSError) and error.errno == errno.ESTALE:
                return _ABSENT
            with self._troubles.tolerated("cannot read the cache", path):
                raise
            return Miss("unreadable", str(error))
        if touch and not root.shared and abs(time.time() - used) > TOUCH_AFTER_S:
            with suppress(OSError):  # read-only, or just evicted
                os.utime(path)
        return found

    def _set_aside(self, root: Root, path: str, damage: EntryDamaged) -> None:
        if not root.shared:
            with suppress(CacheTrouble, OSError):
                root.prepare()
                if publishing.set_aside(root, path):
                    self._counter.add("quarantined")
        self._troubles.report(damage)

    @contextmanager
    def _single_flight(self, digest: str) -> Iterator[bool]:
        """Hold the build lock of a key; yields False when that is not possible."""
        root = self.root
        with ExitStack() as held:
            alone = False
            if root is not None:
                path = root.part(f"locks/{digest}.lock")
                with self._troubles.tolerated("cannot lock a key", path):
                    lock = partial(locks.build_lock, path, self.lock_timeout_s)
                    root.repaired(lambda: held.enter_context(lock()))
                    alone = True
            yield alone
