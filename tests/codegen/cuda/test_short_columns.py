"""Rows of a few elements that are stored as columns: a thread has all of a row."""

from __future__ import annotations

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel, check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(700, 3), (701, 3), (514, 6)], ids=str)
def test_all_of_a_row(shape: tuple[int, int], dtype: torch.dtype, needs_intrinsics: None) -> None:
    """Threads that stored one column after another read all rows for each: 8,388,608 rows of 3 floats 98 us, Triton's
    54 us."""
    x = (torch.arange(shape[0] * shape[1]).reshape(shape) * 7 % 120).to(dtype)

    def function(x: Tensor) -> Tensor:
        return (x * 2).t().contiguous()

    (program,) = programs_of(function, (x,))
    kernel = plan_kernel(program, device_of(TARGET))
    tiling = kernel.plan.mapping.tiling
    assert tiling is not None and (tiling.across, tiling.lines) == ("x0", shape[1])
    found = torch.full_like(function(x), -1)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, function(x))


def test_channels_with_numbers_of_their_own(needs_intrinsics: None) -> None:
    def function(x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        return ((x.float() - mean) * scale).permute(0, 3, 1, 2).contiguous()

    pictures = torch.randint(0, 255, (2, 9, 10, 3), dtype=torch.uint8)
    check_values(function, pictures, torch.randn(3), torch.rand(3))
