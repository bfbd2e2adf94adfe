"""The schedule files that a user names, and those in a folder of schedules beside the project."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.schedule_file import read


def files_in(folder: str) -> tuple[str, ...]:
    """The schedule files in `folder`, in the order of their names; none if there is no such folder, or it is ""."""
    return tuple(str(path) for path in sorted(Path(folder).glob("*.toml"))) if folder else ()


def entries_of(path: str) -> tuple[ScheduleEntry, ...]:
    """The entries of a file, which is read again whenever it has changed.

    Raises:
        ScheduleFileError: it cannot be read, is of a newer version, or not a schedule file.
    """
    try:
        state = os.stat(path)
    except OSError:
        return read(path)
    return _read(os.path.abspath(path), path, state.st_ino, state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=64)
def _read(place: str, path: str, inode: int, changed: int, size: int) -> tuple[ScheduleEntry, ...]:
    # All but the path are what the cache tells versions of a file by.
    del place, inode, changed, size
    return read(path)


def contents_of(paths: Iterable[str]) -> str:
    """A digest of what is in the files, "" if there are none; a file that cannot be read has no content."""
    digests = [_content(path) for path in paths]
    return hashlib.sha256("".join(digests).encode()).hexdigest() if digests else ""


def _content(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return "unreadable"
