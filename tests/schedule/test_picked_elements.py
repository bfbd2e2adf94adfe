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


def windows(x: torch.Tensor) -> torch.Tensor:
    """Of 7 x 7, by steps of 4, that overlap."""
    return F.unfold(x, 7, stride=4)


def test_windows_that_overlap_are_picked_together() -> None:
    """Rows of 31 have two vectors, of which the second begins one element earlier."""
    steps = steps_of(windows, 2, 3, 128, 128)
    assert any(isinstance(step, Split) and step.factor == 7 and step.inner.endswith("_u") for step in steps)
    assert any(isinstance(step, Split) and step.factor == 16 and step.tail == "ShiftInwards" for step in steps)


def test_windows_whose_last_vector_is_short_are_read_one_after_another() -> None:
    steps = steps_of(windows, 2, 3, 79, 79)
    assert not any(isinstance(step, Split) and (step.factor == 7 or step.tail == "ShiftInwards") for step in steps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
@pytest.mark.parametrize("size", [7, 71, 79, 128, 131, 262])
@pytest.mark.parametrize("padding", [0, 3])
def test_windows_are_right(size: int, padding: int, dtype: torch.dtype) -> None:
    x = (torch.rand(2, 3, 11, size) * 50).to(dtype)
    rest = halide_backend.stats()["unfusing_reasons"]

    def both(x: torch.Tensor) -> torch.Tensor:
        padded = F.pad(x, (padding, padding, 0, 0))
        return padded.unfold(-1, 7, 4).unfold(2, 3, 2).permute(0, 1, 4, 5, 2, 3).contiguous() + 1

    call = compile_for("halide_backend", both).call
    torch.testing.assert_close(call(x), both(x), rtol=0, atol=0)
    assert halide_backend.stats()["unfusing_reasons"] == rest


@pytest.mark.parametrize("size", [31, 62, 63, 100, 126])
@pytest.mark.parametrize("pool", [F.avg_pool2d, F.max_pool2d])
def test_pools_of_strided_rows_are_right(size: int, pool: Callable[..., torch.Tensor]) -> None:
    x = torch.randn(2, 3, 20, size)
    call = compile_for("halide_backend", lambda x: pool(x, 3, 2, 1)).call
    torch.testing.assert_close(call(x), pool(x, 3, 2, 1))


def test_rows_that_are_gathered_are_masked() -> None:
    """One instruction loads them, and passes over the lanes that are masked."""
    places = torch.randint(0, 100, (28,))
    steps = steps_of(lambda x: x[:, places] * 2, 400, 100)
    assert not any(isinstance(step, Split) and step.tail == "ShiftInwards" for step in steps)
