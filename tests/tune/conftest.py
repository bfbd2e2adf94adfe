"""What tests of the tuner share: small programs, and a log in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel import Builder

from halide_backend.build.target import Target
from halide_backend.program.loop_program import LoopProgram, Reduction
from halide_backend.schedule.device import Device, device_of


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
def doubled() -> Callable[..., LoopProgram]:
    """doubled(elements): the program of x + x for int32."""

    def made(elements: int = 1000) -> LoopProgram:
        builder = Builder((elements,))
        x = builder.load(torch.int32)
        builder.store(builder.value("add", torch.int32, [x, x]), torch.int32)
        return builder.program()

    return made
