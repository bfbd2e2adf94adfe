"""The tuned schedules that come with this package: what searches found on machines of some classes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.schedule_file import read

#: The files, one for each class of devices.
FOLDER = Path(__file__).parent / "data"


def packaged_schedules(classes: tuple[str, ...] = ()) -> Mapping[str, tuple[ScheduleEntry, ...]]:
    """Entries by program, in order: all, or those for devices of one of the `classes`, after which files are named.

    Raises:
        ScheduleFileError: a file is damaged.
    """
    return _entries(FOLDER, classes)


def packaged_state() -> str:
    """A digest of the files, "" if there are none."""
    return _digest(FOLDER)


@cache
def _entries(folder: Path, classes: tuple[str, ...]) -> Mapping[str, tuple[ScheduleEntry, ...]]:
    found: dict[str, tuple[ScheduleEntry, ...]] = {}
    for path in sorted(folder.glob("*.toml")):
        if classes and path.stem not in classes:
            continue
        for entry in read(path):
            found[entry.program] = (*found.get(entry.program, ()), entry)
    return found


@cache
def _digest(folder: Path) -> str:
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.toml"))]
    return hashlib.sha256("".join(digests).encode()).hexdigest() if digests else ""
