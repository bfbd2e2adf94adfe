"""Rows of a filter that read the same rows are computed together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from captured_kernels import captured_kernels
from torch import Tensor

import halide_backend
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import Split, Unroll

TARGET = Target.named("avx512")


def box(x: Tensor) -> Tensor:
    rows, columns = x.shape[-2:]
    taps = [x[..., i : rows - 2 + i, j : columns - 2 + j] for i in range(3) for j in range(3)]
    return sum(taps[1:], taps[0]) / 9


def causal(x: Tensor) -> Tensor:
    padded = F.pad(x, (0, 0, 3, 0))
    return F.silu(sum(padded[..., i : i + x.shape[-2], :] * (0.1 * i + 0.2) for i in range(4)))


def along(x: Tensor) -> Tensor:
    return x[..., 2:] - 2 * x[..., 1:-1] + x[..., :-2]


def two(x: Tensor) -> Tensor:
    return x[..., 1:, :] - x[..., :-1, :]


def long(x: Tensor) -> Tensor:
    rows = x.shape[-2] - 4
    return sum(torch.exp(torch.sin(x[..., i : i + rows, :])) for i in range(5))


def together(function: Callable[[Tensor], Tensor], x: Tensor, *, dynamic: bool = False) -> int:
    """Rows that the one kernel of `function` computes together."""
    (kernel,) = captured_kernels(function, (x,), TARGET, dynamic)
    steps = plan_kernel(kernel.program, device_of(TARGET)).plan.steps
    unrolled = {step.var for step in steps if isinstance(step, Unroll)}
    rows = [step.factor for step in steps if isinstance(step, Split) and step.inner in unrolled & {"x0_u", "x1_u"}]
    return rows[0] if rows else 1


@pytest.mark.parametrize(
    ("function", "shape", "rows"),
    [
        (box, (130, 200), 4),
        (box, (3, 70, 90), 4),
        (causal, (4, 60, 256), 4),
        (along, (130, 200), 1),
        (two, (130, 200), 1),
        (long, (130, 200), 1),
    ],
)
def test_rows_that_read_the_same_rows_are_computed_together(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], rows: int
) -> None:
    assert together(function, torch.randn(shape)) == rows


def test_rows_of_computed_number_are_computed_one_by_one() -> None:
    assert together(box, torch.randn(130, 200), dynamic=True) == 1


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(3, 40), (4, 33), (7, 17), (9, 100), (2, 30, 70), (5, 131, 64)])
@pytest.mark.parametrize("function", [box, causal])
def test_rows_that_are_computed_together_are_right(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    x = torch.randn(shape).to(dtype)
    halide_backend.reset_stats()
    found = compile_for("halide_backend", function)
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-6
    torch.testing.assert_close(found(x).double(), function(x.double()), rtol=tolerance, atol=tolerance)
    assert not found.delegated
    assert halide_backend.stats()["unfusing_reasons"] == {}
