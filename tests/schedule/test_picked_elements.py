"""Rows of every second, third or fourth element: all rows that the same lines hold are stored together."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from captured_kernels import captured_kernels

import halide_backend
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import Reorder, Split, Step, Unroll

TARGET = Target.named("avx512")


def space_to_depth(x: torch.Tensor) -> torch.Tensor:
    return F.pixel_unshuffle(x, 4)


def reversed_axes(x: torch.Tensor) -> torch.Tensor:
    return (x.permute(2, 1, 0) + 1).contiguous()


def planes(x: torch.Tensor) -> torch.Tensor:
    """The channels of a picture as planes."""
    return ((x.permute(2, 0, 1) - 0.5) * 2).contiguous()


def steps_of(function: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> tuple[Step, ...]:
    (kernel,) = captured_kernels(function, (torch.randn(shape),), TARGET, False)
    return plan_kernel(kernel.program, device_of(TARGET)).plan.steps


@pytest.mark.parametrize(
    ("function", "shape", "rows"),
    [(space_to_depth, (4, 3, 256, 256), 4), (reversed_axes, (70, 50, 3), 3), (planes, (60, 80, 3), 3)],
)
def test_rows_of_the_same_lines_are_a_loop_without_steps(
    function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...], rows: int
) -> None:
    steps = steps_of(function, *shape)
    (order,) = (step.order for step in steps if isinstance(step, Reorder))
    unrolled = {step.var for step in steps if isinstance(step, Unroll)}
    (inside,) = (
        name
        for name in order
        if name in unrolled and name.startswith("x") and name.endswith("_u") and "_i_" not in name
    )
    assert order.index(inside) < next(place for place, name in enumerate(order) if name.endswith(("_i_o", "_b")))
    assert next(step.factor for step in steps if getattr(step, "inner", "") == inside) == rows


def test_longer_rows_of_elements_are_turned_in_tiles() -> None:
    steps = steps_of(reversed_axes, 70, 50, 12)
    assert any(getattr(step, "func", "") == "in_ptr0_0_0" for step in steps)
    assert not any(isinstance(step, Split) and step.inner == "x0_u" and step.factor == 12 for step in steps)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_results_are_right(dtype: torch.dtype, dynamic: bool) -> None:
    halide_backend.reset_stats()
    cases = [(planes, (19, 21, 3)), (planes, (5, 300, 2)), (reversed_axes, (33, 17, 4)), (reversed_axes, (100, 3, 7))]
    cases += [(space_to_depth, (1, 2, 20, 44)), (space_to_depth, (3, 1, 8, 8)), (reversed_axes, (2, 3, 2))]
    for function, shape in cases:
        x = (torch.rand(shape) * 50).to(dtype)
        call = compile_for("halide_backend", function, dynamic=dynamic).call
        torch.testing.assert_close(call(x), function(x), rtol=1e-2 if dtype == torch.bfloat16 else 0, atol=0)
    found = halide_backend.stats()
    assert found["native_kernels"] > 0
    assert (found["delegation_reasons"], found["unfusing_reasons"]) == ({}, {})
