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


def packaged_schedules() -> Mapping[tuple[str, str], tuple[ScheduleEntry, ...]]:
    """All entries by program and device, those of one kernel for different sizes in order.

    Raises:
        ScheduleFileError: a file is damaged.
    """
    return _entries(FOLDER)


def packaged_state() -> str:
    """A digest of the files."""
    return _digest(FOLDER)


@cache
def _entries(folder: Path) -> Mapping[tuple[str, str], tuple[ScheduleEntry, ...]]:
    found: dict[tuple[str, str], tuple[ScheduleEntry, ...]] = {}
    for path in sorted(folder.glob("*.toml")):
        for entry in read(path):
            key = entry.program, entry.device
            found[key] = (*found.get(key, ()), entry)
    return found


@cache
def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.toml")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
