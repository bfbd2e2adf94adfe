"""Points of a thread that share where they are loaded, and masks; kernels run as numpy runs their PTX."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.cuda import points_across
from halide_backend.schedule.device import device_of


def columns(x: Tensor) -> Tensor:
    return F.unfold(x, 3, padding=1)


def shuffled(x: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    return x.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(x.shape)


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few threads be enough."""
    monkeypatch.setattr(points_across, "ENOUGH_WAVES", 1e-6)


@pytest.mark.parametrize(
    ("function", "dtype", "size", "points"),
    [
        (columns, torch.bfloat16, 13, 8),
        (columns, torch.float16, 14, 8),
        # A word is loaded as it is, and what has no mask is soon found.
        (columns, torch.float32, 13, 0),
        (shuffled, torch.bfloat16, 13, 0),
    ],
)
def test_masks_are_computed_once_for_several_channels(
    function: Callable[[Tensor], Tensor],
    dtype: torch.dtype,
    size: int,
    points: int,
    any_size: None,
    needs_intrinsics: None,
) -> None:
    """Each element took 111 instructions for its place: im2col of 90 x 32 x 53 x 53 bfloat16 118 us on an H200, so 73
    us (Triton 87 us)."""
    x = torch.randn(2, 16, size, size, generator=torch.Generator().manual_seed(0)).to(dtype)
    (program,) = programs_of(function, (x,))
    kernel = plan_kernel(program, device_of(TARGET))
    tiling = kernel.plan.mapping.tiling
    assert tiling is not None and tiling.lines == points and tiling.across == ("x0" if points else "")
    found = torch.full_like(function(x), -7)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, function(x))


def test_few_threads_keep_one_point_each(needs_intrinsics: None) -> None:
    (program,) = programs_of(columns, (torch.zeros(2, 16, 13, 13, dtype=torch.bfloat16),))
    tiling = plan_kernel(program, device_of(TARGET)).plan.mapping.tiling
    assert tiling is not None and not tiling.across
