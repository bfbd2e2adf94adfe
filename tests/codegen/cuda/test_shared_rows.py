"""Threads that have several rows of a stencil load what these share once."""

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
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of

DEVICE = device_of(TARGET)


def blurred(x: Tensor) -> Tensor:
    rows, columns = (size - 2 for size in x.shape)
    return sum(x[i : i + rows, j : j + columns] for i in range(3) for j in range(3))  # type: ignore[return-value]


def filtered(x: Tensor) -> Tensor:
    """Each row with the three before it, of which the first ones have none."""
    return sum(F.pad(x, (0, 0, 3 - k, 0))[: x.shape[0]] * (k + 1) for k in range(4))  # type: ignore[return-value]


def maxima(x: Tensor) -> Tensor:
    return F.max_pool2d(x[None], 3, 1, 1)[0]


def doubled(x: Tensor) -> Tensor:
    return F.interpolate(x[None, None], scale_factor=2)[0, 0]


def captured(function: Callable[[Tensor], Tensor], *shape: int, dtype: torch.dtype = torch.float32) -> LoopProgram:
    x = torch.zeros(shape, dtype=dtype)
    (program,) = programs_of(function, (x,))
    return program


@pytest.mark.parametrize("points", [1, 2, 3, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_stencil(points: int, dtype: torch.dtype, needs_intrinsics: None) -> None:
    # Whole numbers, whose sums are exact.
    x = (torch.arange(14 * 34).reshape(14, 34) * 7 % 11).to(dtype)
    plan = plan_kernel(captured(blurred, 14, 34, dtype=dtype), DEVICE, {"pointwise.across": points})
    kernel, found = CudaKernel(plan.text), torch.full((12, 32), -1, dtype=dtype)
    kernel.on_tensors(x, found)
    assert torch.equal(found, blurred(x))
    if dtype is torch.float32 and points > 1:
        assert len(re.findall(r"ld\.global", kernel.code)) == 3 * (points + 2)


@pytest.mark.parametrize("points", [1, 4])
def test_rows_before_the_first_one(points: int, needs_intrinsics: None) -> None:
    x = (torch.arange(16 * 40).reshape(16, 40) * 7 % 11).float()
    plan = plan_kernel(captured(filtered, 16, 40), DEVICE, {"pointwise.across": points})
    found = torch.full_like(x, -1)
    CudaKernel(plan.text).on_tensors(x, found)
    assert torch.equal(found, filtered(x))


@pytest.mark.parametrize(
    ("function", "shape", "rows"),
    [
        (blurred, (8192, 4096), 6),
        (blurred, (8194, 4096), 8),
        (blurred, (8195, 4096), 3),
        (filtered, (8192, 4096), 8),
        (blurred, (300, 400), 0),  # few
        (maxima, (8192, 4096), 0),  # what is beyond a row's ends is not read
        (doubled, (4096, 4096), 0),  # every row is read twice, by quotients
    ],
)
def test_rules(function: Callable[[Tensor], Tensor], shape: tuple[int, ...], rows: int, needs_intrinsics: None) -> None:
    tiling = plan_kernel(captured(function, *shape), DEVICE).plan.mapping.tiling
    assert tiling is not None
    assert (tiling.lines, tiling.threads) == ((rows, 256) if rows else (0, 1))
