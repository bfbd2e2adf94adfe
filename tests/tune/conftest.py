"""What tests of the tuner share: small programs, and a search that ends by its trials instead of a clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel import Builder

from halide_backend.build.target import Target
from halide_backend.program.loop_program import LoopProgram, Reduction
from halide_backend.schedule.device import Device, device_of
from halide_backend.tune.trial import Trial
from halide_backend.tune.trial_log import TrialLog


@pytest.fixture
def device() -> Device:
    return device_of(Target.host())


@pytest.fixture
def row_sums() -> Callable[..., LoopProgram]:
    """row_sums(rows, columns): the program of x.sum(1)."""

    def made(rows: int = 64, columns: int = 512, dtype: Any = torch.float32) -> LoopProgram:
        builder = Builder((rows, columns))
        x = builder.load(dtype)
        builder.store(builder.value("reduction", dtype, [x], Reduction("sum", (builder.axes[1],))), dtype)
        return builder.program()

    return made


@pytest.fixture
def ctrl_c_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """ctrl_c_after(count): Ctrl-C is pressed when a search has logged so many candidates, however long that takes."""
    write = TrialLog.trial

    def pressed(count: int) -> None:
        logged = 0

        def trial(self: TrialLog, made: Trial) -> None:
            nonlocal logged
            write(self, made)
            logged += bool(made.settings)  # the rules' kernel is no candidate
            if made.settings and logged == count:
                raise KeyboardInterrupt

        monkeypatch.setattr(TrialLog, "trial", trial)

    return pressed


@pytest.fixture
def doubled() -> Callable[..., LoopProgram]:
    """doubled(elements): the program of x + x for int32."""

    def made(elements: int = 1000) -> LoopProgram:
        builder = Builder((elements,))
        x = builder.load(torch.int32)
        builder.store(builder.value("add", torch.int32, [x, x]), torch.int32)
        return builder.program()

    return made
