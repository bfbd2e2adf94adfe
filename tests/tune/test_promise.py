"""Which kernel has the next turn, on kernels whose times and trials are made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from halide_backend.build.target import Target
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device, Gpu
from halide_backend.tune.promise import Floors, promise

Made = Callable[..., LoopProgram]


class Made4:
    """Stands for `Floors`: four microseconds."""

    def seconds(self, program: object) -> float:
        return 4e-6


def promised(
    seconds: float,
    *,
    gain: float = 1.0,
    fruitless: int = 0,
    count: int = 1,
    compiling: float = 0.1,
    equally: bool = True,
) -> float:
    trials = [SimpleNamespace(compile_seconds=compiling)] * 3
    history = SimpleNamespace(gain=gain, fruitless=fruitless, trials=trials)
    tuner: Any = SimpleNamespace(seconds=seconds, history=history, kernel=SimpleNamespace(program=None, count=count))
    floors: Any = Made4()
    return promise(tuner, floors, equally=equally)


def test_what_is_farther_from_its_floor_promises_more() -> None:
    # Logarithms of 4 and of 2; a trial takes 0.1 s for compiling and ten samples of 2.5 ms.
    assert promised(16e-6) == pytest.approx(math.log(4) / 0.125)
    assert promised(16e-6) == pytest.approx(2 * promised(8e-6))
    assert promised(16e-6, gain=2.0) == promised(8e-6)
    # What is at its floor, or below it, comes last, but it comes.
    assert 0 < promised(4e-6) == promised(2e-6) < promised(5e-6)


def test_what_was_tried_in_vain_promises_less() -> None:
    assert promised(16e-6, fruitless=9) == pytest.approx(promised(16e-6) / 10)
    assert promised(16e-6, compiling=0.975) == pytest.approx(promised(16e-6) / 8)


def test_seconds_count_where_kernels_do_not_count_equally() -> None:
    assert promised(16e-6, count=5, equally=False) == pytest.approx(5 * 12e-6 / 0.125)
    assert promised(10e-3, equally=False) > promised(16e-6, count=5, equally=False)
    assert promised(16e-6, count=5) == promised(16e-6)


def test_the_floor_is_the_time_that_its_bytes_take(row_sums: Made, device: Device) -> None:
    program = row_sums(1024, 1024)
    gpu = Gpu("sm_90", sms=132, threads=2048, shared_bytes=227 << 10, l2_bytes=50 << 20, bandwidth=4e12)
    assert Floors(gpu, Target.host(), 1).seconds(program) == pytest.approx((1024 * 1024 + 1024) * 4 / 4e12)
    # Between 1 and 1,000 GB/s on a processor.
    assert 4.2e-6 < Floors(device, Target.host(), 1).seconds(program) < 4.2e-3
