"""A key's digest in, the right to build it alone out; and the short lock around publishing.

The kernel gives a lock back when its holder dies. Whoever waits too long learns who holds it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import filelock

from kernels_cache.errors import LockTimeout

if sys.platform != "win32":
    import fcntl

# A build takes 20 ms or more, so waiters that look every 20 ms lose little and cost little.
_BUILD_POLL_S = 0.02
# The ledger is held for some 50 us, for some 50 ms while entries are evicted; but many writers
# on a busy machine poll for it without an order, and one of them may be unlucky for long.
_LEDGER_POLL_S = 0.001
LEDGER_TIMEOUT_S = 60.0


@contextmanager
def build_lock(path: str, timeout_s: float) -> Iterator[None]:
    """Hold the lock file `path`, shared by threads and processes alike.

    Raises:
        LockTimeout: somebody else held it for `timeout_s` seconds; names pid, host and age.
        OSError: the lock cannot be used.
    """
    with _acquired(path, timeout_s, _BUILD_POLL_S) as lock:
        holder = f"{path}.holder"
        with suppress(OSError):
            _write_holder(holder)
        try:
            yield
        finally:
            # Only the holder removes it, and filelock (3.21.2 and later) drops a lock whose file
            # has lost its name; a soft lock (no flock here) is its file, and removes itself.
            with suppress(OSError):
                os.unlink(holder)
            if isinstance(lock, filelock.FileLock):
                with suppress(OSError):
                    os.unlink(path)


@contextmanager
def ledger_lock(path: str) -> Iterator[None]:
    """Hold the lock around publishing and eviction; its file stays.

    Raises:
        LockTimeout, OSError: as `build_lock`.
    """
    with _acquired(path, LEDGER_TIMEOUT_S, _LEDGER_POLL_S):
        yield


def remove_stale(path: str) -> bool:
    """Remove a lock file that nobody holds; tell whether it was removed."""
    try:
        with _acquired(path, 0.0, _BUILD_POLL_S) as lock:
            with suppress(OSError):
                os.unlink(f"{path}.holder")
            if isinstance(lock, filelock.FileLock):
                os.unlink(path)
    except (LockTimeout, OSError):
        return False
    return True


def hold_until_closed(descriptor: int) -> bool:
    """Lock an open file without waiting; tell whether it is ours now.

    The kernel frees it when the descriptor is closed, also by a crash and in any container.
    """
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True
    return False


@contextmanager
def _acquired(path: str, timeout_s: float, poll_s: float) -> Iterator[filelock.BaseFileLock]:
    lock = filelock.FileLock(path, timeout=timeout_s, mode=0o600)
    try:
        lock.acquire(poll_interval=poll_s)
    except filelock.Timeout:
        raise _timed_out(path, timeout_s) from None
    except RuntimeError as error:  # filelock sees that this very thread waits for itself
        raise OSError(f"lock refused: {error}") from None
    try:
        yield lock
    finally:
        with suppress(OSError):
            lock.release(force=True)


def _write_holder(path: str) -> None:
    text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": round(time.time(), 3)})
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def _timed_out(path: str, timeout_s: float) -> LockTimeout:
    pid, host, age_s = _read_holder(f"{path}.holder")
    who = f"process {pid} on {host} has held it for {age_s:.1f} s" if pid else "holder unknown"
    return LockTimeout(
        f"gave up after {timeout_s:g} s waiting for a lock: {who}",
        path,
        "Nothing is lost, this process does the work itself; end the holder if it hangs.",
        pid,
        host,
        age_s,
    )


def _read_holder(path: str) -> tuple[int, str, float]:
    try:
        with open(path, encoding="utf-8") as file:
            data = json.loads(file.read(4096))
        return int(data["pid"]), str(data["host"]), max(0.0, time.time() - float(data["since"]))
    except (OSError, ValueError, TypeError, KeyError):
        return 0, "", -1.0
