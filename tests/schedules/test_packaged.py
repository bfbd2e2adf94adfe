"""The schedules that come with the package: whole files, for known devices, of knobs that the rules still have."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import halide_backend.schedule as rules
from halide_backend.build.target import Target
from halide_backend.schedule.device import Cpu, device_of
from halide_backend.schedule.knobs import Knob
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.packaged import FOLDER, packaged_schedules, packaged_state
from halide_backend.schedules.schedule_file import read

FILES = sorted(FOLDER.glob("*.toml"))
DEVICES = {device_of(Target.cuda(9, 0)).name, *(Cpu(64, vendor=vendor).name for vendor in ("amd", "intel"))}


def knobs() -> dict[str, Knob]:
    """All knobs that are declared, by name."""
    modules = [each.name for each in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")]
    declared = [vars(importlib.import_module(name)).values() for name in modules]
    return {value.name: value for values in declared for value in values if isinstance(value, Knob)}


def entries() -> list[ScheduleEntry]:
    return [entry for path in FILES for entry in read(path)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_for_one_class_of_devices(path: object) -> None:
    found = read(str(path))
    assert found and {f"{entry.device}.toml" for entry in found} == {str(path).rpartition("/")[2]}
    assert {entry.device for entry in found} <= DEVICES


def test_all_of_them_are_found_by_program() -> None:
    found = packaged_schedules()
    assert sum(map(len, found.values())) == len(entries()) > 0
    assert all(entry in found[entry.program] for entry in entries())
    assert packaged_state() != ""


def test_those_for_a_class_of_devices_are_those_that_say_so() -> None:
    for device in DEVICES:
        found = [entry for known in packaged_schedules((device, "sm_1")).values() for entry in known]
        assert sorted(e.identity for e in found) == sorted(e.identity for e in entries() if e.device == device)


def test_an_entry_says_what_it_gained_with_knobs_that_there_are() -> None:
    known = knobs()
    assert "parallel.threads" in known and "loads.hint" in known
    for entry in entries():
        assert entry.origin.startswith("tuned ") and entry.name and entry.steps is None
        assert {key.partition("@")[0] for key, _ in entry.knobs} <= set(known), entry.name
        assert (entry.threads is None) == entry.device.startswith("sm_")
