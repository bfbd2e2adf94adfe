"""A root in, fewer files out: least recently used entries, and what crashes left behind.

Always called with the ledger locked. Only files with our own names are ever removed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from kernels_cache import locks
from kernels_cache.root import Root

# A sweep stops a tenth below the bound, so that the next puts need no sweep.
LOW_WATER = 0.9
# Where locks on files do not work, age decides that a temporary file has no writer.
TEMPORARY_MAX_AGE_S = 86_400.0
QUARANTINE_MAX_FILES = 32

_ENTRY = re.compile(r"([0-9a-f]{64})\.v\d+")
_TEMPORARY = re.compile(r"[0-9a-f]{32}\.tmp")
_QUARANTINED = re.compile(r"[0-9a-f]{64}\.v\d+\.[0-9a-f]{32}")
_LOCK = re.compile(r"[0-9a-f]{64}\.lock")


@dataclass(frozen=True)
class Limits:
    """Ages in seconds that decide what a sweep removes.

    Attributes:
        entry_s: entries unused for longer, None for no such limit.
        temporary_s: temporary files older than this, without a writer. A younger one may belong
            to a writer between its close and its rename, which waits a minute at the most.
        quarantine_s: damaged entries older than this; a week to look into what happened.
    """

    entry_s: float | None = None
    temporary_s: float = 600.0
    quarantine_s: float = 7 * 86_400.0


LIMITS = Limits()


@dataclass(frozen=True)
class File:
    """One file of a store: `path`, `name`, `bytes`, `used` (last use, seconds, epoch)."""

    path: str
    name: str
    bytes: int
    used: float

    @property
    def digest(self) -> str:
        """The key's digest, of an entry."""
        return self.name[:64]


@dataclass(frozen=True)
class Swept:
    """What a sweep did.

    Attributes:
        bytes: size of all files that stay, quarantine included.
        entries: entries that stay.
        removed: digests of the entries removed.
        temporary, quarantined, locks: how many such files were removed.
    """

    bytes: int
    entries: int
    removed: tuple[str, ...]
    temporary: int
    quarantined: int
    locks: int


def entries(root: Root) -> Iterator[File]:
    """Yield the entries of a root, in no order; whatever vanishes meanwhile is left out."""
    for fan in _files(root.part("entries"), re.compile(r"[0-9a-f]{2}"), directories=True):
        yield from _files(fan.path, _ENTRY)


def sweep(root: Root, keep_bytes: int, limits: Limits = LIMITS) -> Swept:
    """Clean up, then remove the least recently used entries until `keep_bytes` are left.

    Args:
        root: a private root whose ledger is locked by the caller.
        keep_bytes: bound for all files together.
        limits: ages.
    """
    now = time.time()
    temporary = _sweep_temporary(root, now - limits.temporary_s, now - TEMPORARY_MAX_AGE_S)
    stale = sum(locks.remove_stale(file.path) for file in list(_files(root.part("locks"), _LOCK)))
    kept, quarantined = _sweep_quarantine(root, now - limits.quarantine_s)
    total = sum(file.bytes for file in kept)

    found = sorted(entries(root), key=lambda file: (file.used, file.name))
    total += sum(file.bytes for file in found)
    removed: list[str] = []
    for file in found:
        expired = limits.entry_s is not None and now - file.used > limits.entry_s
        if total <= keep_bytes and not expired:
            break  # sorted by use: those that follow are younger
        if _removed(file.path):
            total -= file.bytes
            removed.append(file.digest)
    left = len(found) - len(removed)
    return Swept(total, left, tuple(removed), temporary, quarantined, stale)


def _sweep_temporary(root: Root, younger: float, older: float) -> int:
    """Remove temporary files whose writer is gone: the kernel knows, it freed their lock."""
    return sum(
        _removed(file.path)
        for file in _files(root.part("temporary"), _TEMPORARY)
        if file.used <= younger and (file.used < older or _abandoned(file.path))
    )


def _abandoned(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return False
    try:
        return locks.hold_until_closed(descriptor)
    finally:
        os.close(descriptor)


def _sweep_quarantine(root: Root, older: float) -> tuple[list[File], int]:
    found = sorted(_files(root.part("quarantine"), _QUARANTINED), key=lambda file: -file.used)
    kept: list[File] = []
    for at, file in enumerate(found):
        if (at < QUARANTINE_MAX_FILES and file.used >= older) or not _removed(file.path):
            kept.append(file)
    return kept, len(found) - len(kept)


def _removed(path: str) -> bool:
    with suppress(OSError):  # in use (Windows), busy (NFS), or gone: the next sweep tries again
        os.unlink(path)
        return True
    return False


def _files(path: str, name: re.Pattern[str], directories: bool = False) -> Iterator[File]:
    try:
        listing = os.scandir(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    with listing:
        for item in listing:
            if name.fullmatch(item.name) is None:
                continue
            with suppress(FileNotFoundError):
                state = item.stat(follow_symlinks=False)
                wanted = stat.S_ISDIR if directories else stat.S_ISREG
                if wanted(state.st_mode):
                    yield File(item.path, item.name, state.st_size, state.st_mtime)
