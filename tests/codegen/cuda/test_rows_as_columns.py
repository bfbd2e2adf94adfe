"""Rows of a few elements that are stored as columns, as the channels of pixels; dynamic axes in other orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cuda_programs import TARGET
from kernel_values import check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import Split
from halide_backend.schedule.tiling import TilingKind

Compile = Callable[..., Any]


def first(x: Tensor) -> Tensor:
    return (x.float() * 0.5 - 1).permute(0, 3, 1, 2).contiguous()


def pixels(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(0, 200, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def planned(programs: list[Any]) -> PlannedKernel:
    (program,) = programs
    return plan_kernel(program, device_of(TARGET))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("shape", "dynamic"),
    [((2, 5, 7, 3), False), ((2, 4, 8, 3), False), ((2, 5, 7, 4), True), ((2, 5, 7, 3), True), ((3, 21, 67, 3), True)],
    ids=str,
)
def test_values_of_channels(shape: tuple[int, ...], dynamic: bool, dtype: torch.dtype, needs_intrinsics: None) -> None:
    x = pixels(*shape, dtype=dtype)
    torch._dynamo.mark_static(x, 3)
    check_values(first, x, dynamic=dynamic)


@pytest.mark.parametrize(("width", "elements"), [(60, 4), (59, 1)])
def test_a_thread_has_all_channels_of_a_word_of_bytes(programs: Compile, width: int, elements: int) -> None:
    """Bytes of 2600 x 64 x 64 x 3 as floats: a channel each 73.9 us on an H200, all of them 47.2 us, those of four
    pixels 41.5 us; Triton's 65 us."""
    tiling = planned(programs(first, pixels(4, 33, width, 3))).plan.mapping.tiling
    assert tiling is not None
    assert (tiling.kind, tiling.lines, tiling.elements) == (TilingKind.THREAD, 3, elements)
    channel = planned(programs(lambda x: x.float() * 2, pixels(4, 33, width, 3))).plan.mapping.tiling
    assert channel is not None and not channel.across


def test_a_thread_divides_once_for_four_pixels(dynamic: Compile) -> None:
    """Of dynamic sizes: 129.3 us with a channel for each thread, Triton's 45.9 us."""
    x = pixels(4, 65, 59, 3)
    torch._dynamo.mark_static(x, 3)
    kernel = planned(dynamic(first, x))
    tiling = kernel.plan.mapping.tiling
    assert tiling is not None and (tiling.lines, len(tiling.outer)) == (3, 3)
    assert [step.factor for step in kernel.plan.steps if isinstance(step, Split)] == [3, 4 * 256, 256]
    x = pixels(4, 10, 20, 3)
    torch._dynamo.mark_static(x, 3)
    short = planned(dynamic(first, x))
    assert [step.factor for step in short.plan.steps if isinstance(step, Split)] == [3, 256]


def test_axes_that_are_turned_around(needs_intrinsics: None) -> None:
    """Of three axes beside those of a tile Halide lost the bounds: the kernel was left to Triton."""
    x = torch.arange(9 * 2 * 3 * 2 * 10, dtype=torch.float32).view(9, 2, 3, 2, 10)
    check_values(lambda x: x.permute(4, 3, 2, 1, 0) * 2, x, dynamic=True)
    check_values(lambda x: (x * 2).permute(4, 3, 2, 1, 0).contiguous(), x, dynamic=True)


def test_an_interpolation_in_channels_last_is_one_kernel(dynamic: Compile, needs_intrinsics: None) -> None:
    """What it blends is stored by nobody in the end: in a kernel of its own 1,180 us on an H200, in one 415 us, of
    Triton's dynamic kernel 620 us. Its axes are one, in the order of memory: else 966 us."""

    def enlarged(x: Tensor) -> Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False)

    x = torch.randn(2, 3, 5, 7).to(memory_format=torch.channels_last)
    kernel = planned(dynamic(enlarged, x))
    tiling = kernel.plan.mapping.tiling
    assert tiling is not None and len(tiling.outer) == 1
    check_values(enlarged, x, dynamic=True)
