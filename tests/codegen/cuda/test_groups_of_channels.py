"""Statistics of groups of channels, whose results are stored for each channel: sizes may be unknown."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from captured_kernels import captured_kernels
from cuda_programs import TARGET
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of
from halide_backend.schedule.tiling import TilingKind


def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(x, 4, w, b)


def gradient(x: Tensor, w: Tensor, b: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = torch.func.vjp(lambda x, w, b: F.silu(group_norm(x, w, b)), x, w, b)[1](g)
    return found


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [group_norm, gradient])
def test_no_thread_has_all_pixels_of_a_group(function: Callable[..., object], dynamic: bool) -> None:
    """With every size unknown one kernel stored for each channel, or for each pixel, what a thread had computed for a
    whole group: 12,544 pixels one after another."""
    x, w = torch.empty(6, 16, 56, 56), torch.empty(16)
    arguments = (x, w, w.clone(), *((x.clone(),) if function is gradient else ()))
    alone = [0]
    for kernel in captured_kernels(function, arguments, TARGET, dynamic):
        tiling = plan_kernel(kernel.program, device_of(TARGET)).plan.mapping.tiling
        assert tiling is not None
        extents = {axis.name: axis.hint for axis in kernel.program.axes}
        if tiling.kind is TilingKind.THREAD and tiling.inner:
            alone.append(math.prod(extents.get(name, 1) for name in tiling.inner))
    assert max(alone) < 56 * 56
