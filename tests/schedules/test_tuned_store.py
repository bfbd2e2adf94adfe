"""The store of tuned schedules: one entry a program, device and size class, whole for every reader."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.schedule_file import read
from halide_backend.schedules.size_class import SizeRange
from halide_backend.schedules.tuned_store import TunedStore, tuned_store
from kernels_cache import Store
from kernels_cache.bundle import export_bundle, import_bundle

ENTRY = ScheduleEntry("ab" * 32, "x86-64-512", (("parallel.threads", False),), origin="tuned", name="k_0")
SIZES = (SizeRange("x0", 4, 15),)


def test_entries_are_found_by_program_device_and_sizes() -> None:
    store = tuned_store()
    dynamic = replace(ENTRY, sizes=SIZES, knobs=())
    assert store.find(ENTRY.program, ENTRY.device) is None and store.state() == ""
    store.put(ENTRY)
    store.put(dynamic)
    assert store.find(ENTRY.program, ENTRY.device) == ENTRY
    assert store.find(ENTRY.program, ENTRY.device, SIZES) == dynamic
    assert store.find(ENTRY.program, "sm_90") is None
    assert store.find("0" * 64, ENTRY.device) is None
    assert store.find(ENTRY.program, ENTRY.device, (SizeRange("x0", 16, 63),)) is None
    assert {entry.sizes for entry in store.entries()} == {(), SIZES}


def test_a_better_one_takes_the_place() -> None:
    better = replace(ENTRY, knobs=(("parallel.threads", True),))
    tuned_store().put(ENTRY)
    before = tuned_store().state()
    tuned_store().put(better)
    assert list(tuned_store().entries()) == [better]
    assert tuned_store().state() != before
    tuned_store().put(ENTRY)
    assert tuned_store().state() == before


def test_it_lies_in_the_cache_and_compiled_kernels_do_not_evict_it(tmp_path: Path) -> None:
    tuned_store().put(ENTRY)
    (path,) = (tmp_path / "kernels" / "schedules" / "entries").rglob("*.v1")
    assert path.is_file() and not (tmp_path / "kernels" / "entries").exists()
    # A sweep of the kernels leaves it alone.
    Store.open(tmp_path / "kernels", max_bytes=1).prune()
    assert tuned_store().find(ENTRY.program, ENTRY.device) == ENTRY


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")  # one a process
@pytest.mark.parametrize("spoil", [lambda b: b[:-3], lambda b: b.replace(b"false", b"true "), lambda b: b""])
def test_a_damaged_entry_is_set_aside(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    tuned_store().put(ENTRY)
    (path,) = (tmp_path / "kernels" / "schedules" / "entries").rglob("*.v1")
    path.write_bytes(spoil(path.read_bytes()))
    assert tuned_store().find(ENTRY.program, ENTRY.device) is None
    assert not path.exists()
    tuned_store().put(ENTRY)
    assert tuned_store().find(ENTRY.program, ENTRY.device) == ENTRY


def test_an_entry_of_a_newer_version_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from halide_backend.schedules import schedule_file

    with monkeypatch.context() as patch:
        patch.setattr(schedule_file, "SCHEMA", schedule_file.SCHEMA + 1)
        tuned_store().put(ENTRY)
    assert tuned_store().find(ENTRY.program, ENTRY.device) is None
    assert list(tuned_store().entries()) == []


def test_a_bundle_takes_schedules_to_another_machine(tmp_path: Path) -> None:
    tuned_store().put(ENTRY)
    here, there = (Store.open(tmp_path / name / "schedules") for name in ("kernels", "other"))
    export_bundle(here, str(tmp_path / "bundle"))
    import_bundle(there, str(tmp_path / "bundle"))
    assert TunedStore(there).find(ENTRY.program, ENTRY.device) == ENTRY
    assert TunedStore(there).state() == tuned_store().state()


def test_a_shared_cache_has_schedules_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned_store().put(ENTRY)
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_SHARED", str(tmp_path / "kernels"))
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "mine"))
    assert tuned_store().find(ENTRY.program, ENTRY.device) == ENTRY
    mine = replace(ENTRY, knobs=())
    tuned_store().put(mine)
    assert tuned_store().find(ENTRY.program, ENTRY.device) == mine


@pytest.mark.filterwarnings("ignore::kernels_cache.CacheWarning")
def test_without_a_place_nothing_is_kept_and_nothing_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "file"))
    tuned_store().put(ENTRY)
    assert tuned_store().find(ENTRY.program, ENTRY.device) is None
    assert tuned_store().state() == ""


WRITER = """
import sys
from dataclasses import replace
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.tuned_store import tuned_store
number = int(sys.argv[1])
entry = ScheduleEntry("ab" * 32, "x86-64-512", (("knob", number),) * 1, name="k" * 2000 * number)
for turn in range(60):
    tuned_store().put(replace(entry, origin=f"{number} {turn}"))
    tuned_store().put(replace(entry, program=f"{number:02x}" * 32, origin=str(turn)))
    found = tuned_store().find(entry.program, entry.device)
    assert found is not None and found.name == "k" * 2000 * dict(found.knobs)["knob"], found
    tuned_store().state()
"""


def test_two_processes_write_and_read_at_once(tmp_path: Path) -> None:
    """Every reader finds one of the writers' whole entries, and none of the others' is lost."""
    environment = {**os.environ, "HALIDE_BACKEND_CACHE_STRICT": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(number)], env=environment, stderr=subprocess.PIPE, text=True
        )
        for number in (1, 2, 3)
    ]
    for process in running:
        assert process.communicate(timeout=300)[1] == "" and process.returncode == 0
    found = {entry.program: entry for entry in tuned_store().entries()}
    assert set(found) == {"ab" * 32, "01" * 32, "02" * 32, "03" * 32}
    assert {found[f"{number:02x}" * 32].origin for number in (1, 2, 3)} == {"59"}


def test_export_writes_what_a_project_can_commit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from halide_backend import cli

    other = replace(ENTRY, sizes=SIZES)
    tuned_store().put(ENTRY)
    tuned_store().put(other)
    assert cli.main(["schedules", "export", "--output", "tuned.toml"]) == 0
    assert set(read("tuned.toml")) == {ENTRY, other}
    first = Path("tuned.toml").read_bytes()
    assert cli.main(["schedules", "export", "--output", "tuned.toml"]) == 0
    assert Path("tuned.toml").read_bytes() == first
    assert cli.main(["schedules", "list"]) == 0
    assert capsys.readouterr().out.count("this machine") == 2
