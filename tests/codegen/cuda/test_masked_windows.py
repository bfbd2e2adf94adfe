"""Loads under a mask that begin within a vector, or have a stride, read the aligned vectors around them."""

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
from halide_backend.schedule.device import device_of


def neighbours(x: Tensor) -> Tensor:
    left, right = F.pad(x, (1, 0))[..., :-1], F.pad(x, (0, 1))[..., 1:]
    above, below = F.pad(x, (0, 0, 1, 0))[..., :-1, :], F.pad(x, (0, 0, 0, 1))[..., 1:, :]
    return 4 * x - left - right - above - below


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "neighbours": neighbours,
    "padding": lambda x: F.pad(x, (3, 5), value=1.0),
    "pooling": lambda x: F.max_pool2d(x, 3, 2, 1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_element_and_few_loads(name: str, dtype: torch.dtype, needs_intrinsics: None) -> None:
    x = (torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(1)) * 8).round().to(dtype)
    wanted = FUNCTIONS[name](x)
    (program,) = programs_of(FUNCTIONS[name], (x,))
    found = torch.full_like(wanted, -99)
    kernel = CudaKernel(plan_kernel(program, device_of(TARGET)).text)
    kernel.on_tensors(x, found)
    assert torch.equal(found, wanted)
    # Element by element they were up to eight for each tap.
    taps = {"neighbours": 5, "padding": 1, "pooling": 9}[name]
    assert len(re.findall(r"ld\.global", kernel.code)) <= 2 * taps
