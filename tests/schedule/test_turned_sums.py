"""Sums of columns over several axes with an operand that lies across: its tiles are turned once."""

from __future__ import annotations

import pytest
import torch
from captured_kernels import captured_kernels

import halide_backend
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import RFactor, Split

TARGET = Target.named("avx512")


def channels(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What a norm's gradients are: sums over all pixels of each channel, of pictures in both layouts."""
    return (x * y).sum((0, 2, 3)), x.sum((0, 2, 3))


def pictures(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(shape).contiguous(memory_format=torch.channels_last), torch.randn(shape)


@pytest.mark.parametrize("shape", [(16, 384, 14, 14), (4, 64, 32, 32), (2, 96, 56, 56)], ids=str)
def test_no_piece_is_less_than_a_tile(shape: tuple[int, ...]) -> None:
    (kernel,) = captured_kernels(channels, pictures(*shape), TARGET, False)
    plan = plan_kernel(kernel.program, device_of(TARGET)).plan
    turned = plan.mapping.transposition
    assert turned is not None and turned.reduced == "columns"
    pieces = {step.rvar for step in plan.steps if isinstance(step, RFactor)}
    cut = [step for step in plan.steps if isinstance(step, Split) and step.outer in pieces]
    # The loop over pixels is the first one of the reduction.
    assert cut and all(step.factor % turned.side == 0 for step in cut if step.old.startswith("r_0$x"))


@pytest.mark.parametrize("shape", [(16, 384, 14, 14), (4, 64, 32, 32), (2, 96, 56, 56), (5, 33, 17, 9)], ids=str)
def test_sums_are_right_and_round_a_few_times(shape: tuple[int, ...]) -> None:
    halide_backend.reset_stats()
    call = compile_for("halide_backend", channels).call
    x, y = pictures(*shape)
    for got, wanted in zip(call(x, y), channels(x.double(), y.double()), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-4)
    # A running sum of equal terms errs by up to n/12 units in the last place, in one accumulator by some hundreds.
    x, y = torch.full_like(x, 0.1), torch.full_like(y, 0.3)
    for got, wanted in zip(call(x, y), channels(x.double(), y.double()), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=8 * 2.0**-23, atol=0)
    assert halide_backend.stats()["unfusing_reasons"] == halide_backend.stats()["delegation_reasons"] == {}


@pytest.mark.parametrize("pixels", [200, 131])
def test_a_reduction_of_another_ones_result_turns_nothing_again(pixels: int) -> None:
    """The squares of deviations need a mean that is computed beside sums of turned tiles. No schedule was legal, since
    these were to be turned for them, too, and the kernel fell apart into seven."""

    def statistics(x: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, ...]:
        mean = x.sum(1) / pixels
        deviation = x - mean[:, None]
        return mean, (deviation * deviation).sum(1), (g.mT * x).sum(1), g.sum(2)

    x, g = torch.randn(3, pixels, 16), torch.randn(3, 16, pixels)
    (kernel,) = captured_kernels(statistics, (x, g), TARGET, False)
    turned = plan_kernel(kernel.program, device_of(TARGET)).plan.mapping.transposition
    assert turned is not None and turned.reduced == "columns"
    halide_backend.reset_stats()
    call = compile_for("halide_backend", statistics).call
    for got, wanted in zip(call(x, g), statistics(x.double(), g.double()), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-3)
    assert halide_backend.stats()["unfusing_reasons"] == halide_backend.stats()["delegation_reasons"] == {}
