"""Schedules and Inductor's caches: another process uses them, and nothing old comes back when they change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., dict[str, Any]]
Make = Callable[..., None]
Use = Callable[..., tuple[bool, bool]]

#: Compiles a kernel; reports whether Inductor had the graph, and whether the kernel's loops are shared among threads.
USE = """
import torch, halide_backend
from torch._dynamo.utils import counters
x = torch.randn(300, 1000)
with torch._inductor.config.patch(fx_graph_cache=True):
    y = torch.compile(lambda x: torch.softmax(x, -1), backend="halide_backend")(x)
torch.testing.assert_close(y, torch.softmax(x, -1))
(record,) = halide_backend.records()
report(
    cached=counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"],
    schedule=record.schedule, parallel="    Parallel(" in record.text, captured=record.captured,
)
"""

#: Writes the kernel's schedule without threads to the place `{place}`.
MAKE = """
import torch, halide_backend
from dataclasses import replace
from halide_backend.schedule.device import device_of
from halide_backend.schedules.planning import entry_of
from halide_backend.schedules.schedule_file import write
from halide_backend.schedules.tuned_store import tuned_store
torch.compile(lambda x: torch.softmax(x, -1), backend="halide_backend")(torch.randn(300, 1000))
(record,) = halide_backend.records()
entry = entry_of(record.program, device_of(record.target), record.plan, name=record.name)
entry = replace(entry, knobs=tuple({**dict(entry.knobs), "parallel.threads": False}.items()))
"""
TO_FILE = MAKE + "write('fast.toml', [entry])\n"
TO_STORE = MAKE + "tuned_store().put(entry)\n"


@pytest.fixture
def use(run: Run) -> Use:
    """Whether another process found the graph in a cache, and whether its kernel uses threads."""

    def in_a_process(**environment: str) -> tuple[bool, bool]:
        found = run(USE, **environment)
        assert found["captured"] is not bool(found["cached"]), found["log"]
        assert "WARNING" not in found["log"]
        return bool(found["cached"]), found["parallel"]

    return in_a_process


@pytest.fixture
def make(run: Run) -> Make:
    """Runs a script that makes a schedule, without Inductor's caches."""

    def without_caches(script: str, **environment: str) -> None:
        run(script, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1", **environment)

    return without_caches


def test_a_named_file_in_other_processes(make: Make, use: Use, tmp_path: Path) -> None:
    make(TO_FILE)
    named = {"HALIDE_BACKEND_SCHEDULE_FILES": "fast.toml"}
    assert use() == (False, True)
    assert use(**named) == (False, False)
    assert use(**named) == (True, False)
    text = (tmp_path / "fast.toml").read_text()
    (tmp_path / "fast.toml").write_text(text.replace('threads" = false', 'threads" = true'))
    assert use(**named) == (False, True)
    (tmp_path / "fast.toml").write_text(text)
    assert use(**named) == (True, False)


def test_the_folder_and_the_store_in_other_processes(make: Make, use: Use, tmp_path: Path) -> None:
    make(TO_FILE)
    assert use() == (False, True)
    (tmp_path / "halide_schedules").mkdir()
    (tmp_path / "fast.toml").rename(tmp_path / "halide_schedules" / "fast.toml")
    assert use() == (False, False)
    (tmp_path / "halide_schedules" / "fast.toml").unlink()
    assert use() == (True, True)
    make(TO_STORE)
    assert use() == (False, False)
    assert use() == (True, False)
    assert use(HALIDE_BACKEND_TUNE="never") == (False, True)
    # What was tuned is deleted: the rules again.
    (tmp_path / "kernels" / "schedules").rename(tmp_path / "deleted")
    assert use() == (True, True)


def test_another_checkout_uses_a_file_and_a_machine_of_another_class_does_not(
    run: Run, make: Make, copied: Callable[..., Path], tmp_path: Path
) -> None:
    make(TO_FILE, HALIDE_BACKEND_TARGET="avx2")
    named = {"HALIDE_BACKEND_SCHEDULE_FILES": "fast.toml", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "other")}
    found = run(USE, package=copied(), HALIDE_BACKEND_TARGET="avx2", **named)
    assert found["parallel"] is False and found["schedule"].startswith("fast.toml, line 4")
    found = run(USE, HALIDE_BACKEND_TARGET="sse41", **named)
    assert found["parallel"] is True and found["schedule"] == ""


def test_a_schedule_that_fits_nothing_is_named_when_the_process_ends(run: Run, make: Make, tmp_path: Path) -> None:
    make(TO_FILE)
    text = (tmp_path / "fast.toml").read_text()
    lines = [f'program = "{"0" * 64}"' if line.startswith("program") else line for line in text.splitlines()]
    (tmp_path / "fast.toml").write_text("\n".join(lines) + "\n")
    named = {"HALIDE_BACKEND_SCHEDULE_FILES": "fast.toml"}
    for cached in (False, True):
        found = run(USE, **named)
        assert bool(found["cached"]) is cached
        assert (
            found["log"].count(
                "No kernel of this process has this schedule: fast.toml, line 4, kernel halide_fused__softmax_0 "
            )
            == 1
        )
