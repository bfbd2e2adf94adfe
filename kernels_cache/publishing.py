"""Bytes in, an entry on disk out: whole or not at all, and never above the bound.

temporary file -> fsync -> ledger locked { make room, count, rename }. The ledger is one number
that is never below the truth: it is raised before a rename and lowered after a removal, so a
crash in between costs an early sweep, never the bound.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kernels_cache import locks, sweep
from kernels_cache.errors import EntryTooLarge
from kernels_cache.root import Root

# A sweep also cleans up, so a store that never fills is swept once a day.
SWEEP_EVERY_S = 86_400.0

_LEDGER = re.compile(rb"(\d{20}) (\d{20})\n")
_LEDGER_BYTES = 42


def publish(root: Root, digest: str, blob: bytes, max_bytes: int) -> tuple[str, ...]:
    """Publish the file of an entry and return the digests evicted for it.

    Raises:
        EntryTooLarge: it can never fit.
        RootUntrusted, LockTimeout, OSError: it was not published.
    """
    if len(blob) > max_bytes:
        raise EntryTooLarge(
            f"an entry of {len(blob)} bytes in a store bounded to {max_bytes}",
            digest,
            "Raise max_bytes.",
        )
    return root.repaired(lambda: _publish(root, digest, blob, max_bytes))


def discard(root: Root, digest: str) -> bool:
    """Remove an entry; tell whether there was one.

    Raises:
        RootUntrusted, LockTimeout, OSError: it was not removed.
    """
    return root.usable() and root.repaired(lambda: _discard(root, digest))


def prune(root: Root, keep_bytes: int, limits: sweep.Limits) -> sweep.Swept:
    """Sweep now, whatever the ledger says.

    Raises:
        RootUntrusted, LockTimeout, OSError: it was not swept.
    """

    def locked() -> sweep.Swept:
        with ledger(root):
            return swept(root, keep_bytes, limits)

    return root.repaired(locked)


def set_aside(root: Root, path: str) -> bool:
    """Move a damaged entry to the quarantine; tell whether it is out of the way."""
    name = f"{os.path.basename(path)}.{uuid.uuid4().hex}"
    try:
        os.rename(path, os.path.join(root.part("quarantine"), name))
    except FileNotFoundError:
        return not os.path.lexists(path)
    return True


@contextmanager
def ledger(root: Root) -> Iterator[None]:
    """Lock the ledger of a prepared root.

    Raises:
        LockTimeout, OSError: as `locks.ledger_lock`.
    """
    with locks.ledger_lock(root.part("locks/ledger.lock")):
        yield


def swept(root: Root, keep_bytes: int, limits: sweep.Limits = sweep.LIMITS) -> sweep.Swept:
    """Sweep a root whose ledger is locked, and correct the ledger."""
    done = sweep.sweep(root, keep_bytes, limits)
    _write_ledger(root, done.bytes, int(time.time()))
    return done


def _publish(root: Root, digest: str, blob: bytes, max_bytes: int) -> tuple[str, ...]:
    path = root.entry(digest)
    with _temporary(root, blob) as temporary, ledger(root):
        total, evicted = _room(root, len(blob), max_bytes)
        replaced = _size(path)
        with suppress(FileExistsError):
            os.mkdir(os.path.dirname(path), 0o700)
        swept_at = _read_ledger(root)[1]
        _write_ledger(root, total + len(blob), swept_at)
        _rename(temporary, path)
        if replaced:
            _write_ledger(root, total + len(blob) - replaced, swept_at)
    return evicted


def _discard(root: Root, digest: str) -> bool:
    path = root.entry(digest)
    with ledger(root):
        size = _size(path)
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        total, swept_at = _read_ledger(root)
        if total is not None:
            _write_ledger(root, max(0, total - size), swept_at)
    return True


@contextmanager
def _temporary(root: Root, blob: bytes) -> Iterator[str]:
    # Not pid and thread: two containers on one volume have the same ones.
    path = f"{root.part('temporary')}/{uuid.uuid4().hex}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        try:
            # Tells every sweep, in any container, that the writer is alive.
            locks.hold_until_closed(descriptor)
            rest = memoryview(blob)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            # The directory is not synced: a rename lost with the power is only a miss.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        yield path
    finally:
        with suppress(OSError):
            os.unlink(path)


def _rename(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)
    except FileNotFoundError:
        raise
    except OSError:
        # Network file systems report EBUSY or ESTALE for a rename that was done.
        if os.path.lexists(temporary):
            raise


def _room(root: Root, size: int, max_bytes: int) -> tuple[int, tuple[str, ...]]:
    """Return the bytes in use, after evicting when `size` more would not fit."""
    total, swept_at = _read_ledger(root)
    full = total is not None and total + size > max_bytes
    due = not 0 <= time.time() - swept_at < SWEEP_EVERY_S
    if total is not None and not full and not due:
        return total, ()
    keep = max_bytes - size
    done = swept(root, min(keep, int(max_bytes * sweep.LOW_WATER)) if full else keep)
    return done.bytes, done.removed


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def _read_ledger(root: Root) -> tuple[int | None, int]:
    """Return bytes in use (None: unknown) and the time of the last sweep."""
    try:
        descriptor = os.open(root.part("ledger"), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except FileNotFoundError:
        return None, 0
    try:
        match = _LEDGER.fullmatch(os.read(descriptor, _LEDGER_BYTES + 1))
    finally:
        os.close(descriptor)
    return (int(match[1]), int(match[2])) if match else (None, 0)


def _write_ledger(root: Root, total: int, swept_at: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(root.part("ledger"), flags, 0o600)
    try:
        os.write(descriptor, b"%020d %020d\n" % (total, swept_at))
    finally:
        os.close(descriptor)
