"""Several outputs over more axes than a grid has dimensions are one kernel: some of the axes become one."""

from __future__ import annotations

import pytest
import torch
from captured_kernels import captured_kernels
from cuda_programs import TARGET
from kernel_values import check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of


def within_padding(padded: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """What was padded is read without the padding: its four axes are not one line of memory."""
    inside = padded[:, 1:-1, 1:-1] * x
    return inside, torch.maximum(inside, y)


SHAPES = ((3, 7, 9, 160), (3, 5, 7, 160), (160,))


def test_they_are_one_kernel() -> None:
    arguments = tuple(torch.empty(size) for size in SHAPES)
    (kernel,) = captured_kernels(within_padding, arguments, TARGET)
    assert len(kernel.program.stores) == 2 and len(kernel.program.outer) == 4
    plan = plan_kernel(kernel.program, device_of(TARGET)).plan
    assert plan.mapping.tiling is not None
    assert plan.mapping.rule == "pointwise" and len(plan.mapping.tiling.outer) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values(dtype: torch.dtype, needs_intrinsics: None) -> None:
    generator = torch.Generator().manual_seed(0)
    arguments = [torch.randn(size, generator=generator).to(dtype) for size in SHAPES]
    (kernel,) = check_values(within_padding, *arguments)
    assert kernel.code.count(".entry") == 1
