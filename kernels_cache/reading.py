"""A path in, verified bytes or a verified manifest out. Readers take no lock.

An entry is read once, whole; what is verified is what is returned. Nothing follows a link,
blocks on a pipe, or trusts a file that somebody else could have written.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from kernels_cache import entry
from kernels_cache.errors import EntryDamaged

# O_NONBLOCK: opening a pipe that lies where an entry should be would wait for ever.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
# Header and manifest of nearly every entry, in one read.
_FIRST_BYTES = 16384


@contextmanager
def opened(path: str, owners: frozenset[int]) -> Iterator[tuple[int, os.stat_result]]:
    """Open the file of an entry and examine what was opened.

    Raises:
        FileNotFoundError: there is none.
        EntryDamaged: a link, not a regular file, or one that others can write.
        OSError: it cannot be opened.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError as error:
        if not isinstance(error, FileNotFoundError) and os.path.islink(path):
            raise _foreign("it is a symbolic link", path) from None
        raise
    try:
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise _foreign("it is not a regular file", path)
        if owners and (state.st_uid not in owners or state.st_mode & 0o022):
            raise _foreign(f"user {state.st_uid} or others can write it", path)
        yield descriptor, state
    finally:
        os.close(descriptor)


def read_entry(path: str, digest: str, owners: frozenset[int]) -> tuple[entry.Entry, float]:
    """Return the verified entry at `path`, and when it was last used (seconds, epoch).

    Raises:
        FileNotFoundError, EntryDamaged, OSError: as `opened`.
        entry.UnknownSchema: written by another version of this package.
    """
    with opened(path, owners) as (descriptor, state):
        blob = _read(descriptor, state.st_size)
    return entry.unpack(blob, digest, path), state.st_mtime


def read_manifest(path: str, owners: frozenset[int]) -> entry.Manifest:
    """Return what an entry says about itself, reading none of its payload.

    Raises:
        FileNotFoundError, EntryDamaged, OSError, entry.UnknownSchema: as `read_entry`.
    """
    with opened(path, owners) as (descriptor, state):
        start = _read(descriptor, min(state.st_size, _FIRST_BYTES))
        need = entry.HEADER_BYTES + entry.manifest_bytes(start, path)
        if need > len(start) and need <= state.st_size:
            start += _read(descriptor, need - len(start))
    return entry.manifest(start, path)


def _read(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        part = os.read(descriptor, size)
        if not part:
            break  # truncated while we read: the verification that follows says so
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _foreign(reason: str, where: str) -> EntryDamaged:
    return EntryDamaged(f"a cache entry is not to be trusted: {reason}", where, "It will be built again.")
