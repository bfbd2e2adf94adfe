"""Threads that compute where to read once for several points along an axis on which that does not depend."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of

DEVICE = device_of(TARGET)


def bilinear(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def columns(x: Tensor, index: Tensor) -> Tensor:
    return x[:, index] * 2


def captured(function: Callable[..., Tensor], *arguments: Tensor) -> LoopProgram:
    (program,) = programs_of(function, arguments)
    return program


@pytest.mark.parametrize("points", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_interpolation(points: int, dtype: torch.dtype, needs_intrinsics: None) -> None:
    x = (torch.arange(3 * 8 * 5 * 7).reshape(3, 8, 5, 7) * 7 % 30).to(dtype)
    plan = plan_kernel(captured(bilinear, x), DEVICE, {"pointwise.across": points})
    assert plan.plan.mapping.tiling is not None
    assert plan.plan.mapping.tiling.lines == (0 if points == 1 else points)
    kernel, wanted = CudaKernel(plan.text), bilinear(x)
    found = torch.full_like(wanted, -1)
    kernel.on_tensors(x, found)
    torch.testing.assert_close(found, wanted)
    if points == 8:
        # Indices of a thread's word are computed once: four conversions to integers for all of its points.
        assert len(re.findall(r"cvt\.rzi", kernel.code)) <= 4


def test_rows_share_the_columns_that_are_picked(needs_intrinsics: None) -> None:
    x, index = torch.arange(8 * 40).reshape(8, 40).float(), torch.arange(24) * 7 % 40
    kernel = CudaKernel(plan_kernel(captured(columns, x, index), DEVICE, {"pointwise.across": 8}).text)
    assert len(re.findall(r"ld\.global\S*b64", kernel.code)) == 1
    found = torch.full((8, 24), -1.0)
    kernel.on_tensors(*(x, index) if _order(kernel) == "x" else (index, x), found)
    assert torch.equal(found, columns(x, index))


def _order(kernel: CudaKernel) -> str:
    return "index" if kernel.arguments[0]["bits"] == 64 else "x"


def test_rules(needs_intrinsics: None) -> None:
    """Many points share; few leave too few threads, and an axis on which all indices depend is none."""
    many, few = torch.zeros(64, 32, 56, 56), torch.zeros(1, 32, 8, 8)
    tilings = [plan_kernel(captured(bilinear, x), DEVICE).plan.mapping.tiling for x in (many, few)]
    assert [(tiling.across, tiling.lines) if tiling else None for tiling in tilings] == [("x0", 8), ("", 0)]


def test_blocks_have_the_rows_that_they_read_all_over(needs_intrinsics: None) -> None:
    """Four blocks read the same eight rows, of 128 KiB together: their sectors left the cache before all was picked."""
    x, index = torch.zeros(8192, 4096), torch.arange(2048)
    plan = plan_kernel(captured(columns, x, index), DEVICE)
    assert plan.plan.mapping.tiling is not None
    assert plan.plan.mapping.tiling.lines * 4096 * 4 <= 32 << 10
    assert "'block', 'thread', 1024)" in plan.text


def test_a_number_that_does_not_divide_is_refused(needs_intrinsics: None) -> None:
    program = captured(bilinear, torch.zeros(3, 6, 8, 8))
    with pytest.raises(IllegalPlan, match="8 points do not divide"):
        plan_kernel(program, DEVICE, {"pointwise.across": 8})
