"""What tests of schedules in use share: a place of their own for caches, and schedule files of small kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.usage import usage

Edit = Callable[[ScheduleEntry], ScheduleEntry]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No schedules of this machine, no folder beside the project, nothing used yet."""
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.chdir(tmp_path)
    usage.reset()
    yield
    usage.reset()


@pytest.fixture
def entries() -> Callable[..., list[ScheduleEntry]]:
    """entries(function, *arguments): those of the rules' plans of its kernels, on this machine."""
    import torch
    from torch._inductor import config as inductor_config

    import halide_backend
    from halide_backend.schedule.device import device_of
    from halide_backend.schedules.planning import entry_of

    def of(function: Callable[..., Any], *arguments: Any, dynamic: bool = False) -> list[ScheduleEntry]:
        halide_backend.reset_stats()
        torch._dynamo.reset()
        with (
            inductor_config.patch(force_disable_caches=True),
            halide_backend.config.patch(schedule_folder="", tune="never"),
        ):
            torch.compile(function, backend="halide_backend", dynamic=dynamic)(*arguments)
        torch._dynamo.reset()
        found = [
            entry_of(record.program, device_of(record.target), record.plan, origin="edited", name=record.name)
            for record in halide_backend.records()
            if record.program is not None and record.plan is not None and record.target is not None
        ]
        halide_backend.reset_stats()
        usage.reset()
        return found

    return of


@pytest.fixture
def serial() -> Edit:
    """An edit that is seen in the text of a kernel: no threads."""
    return lambda entry: replace(
        entry, knobs=tuple({**dict(entry.knobs), "parallel.threads": False}.items()), steps=None
    )
