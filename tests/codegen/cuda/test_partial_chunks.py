"""Chunks that the end of a tensor cuts short, where a thread has several; kernels run as numpy runs their PTX."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "uint8": lambda x: torch.clamp(torch.round(x * 25.0) + 10, 0, 255).to(torch.uint8),
    "int8": lambda x: torch.clamp(x * 9, -128, 127).to(torch.int8),
    "bool": lambda x: x > 0.3,
    "bfloat16": lambda x: (x * 2 + 1).to(torch.bfloat16),
}


@pytest.mark.parametrize("steps", [2, 8])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("length", [5 * 2001, 2051])
def test_every_step_stores_what_it_has(name: str, length: int, steps: int, needs_intrinsics: None) -> None:
    """LLVM merges the stores of full blocks and of the last one: a full one stored as much as some register said."""
    x = torch.randn(length, generator=torch.Generator().manual_seed(length))
    wanted = FUNCTIONS[name](x)
    (program,) = programs_of(FUNCTIONS[name], (x,))
    kernel = plan_kernel(program, device_of(TARGET), {"pointwise.steps": steps})
    assert kernel.plan.mapping.tiling is not None and kernel.plan.mapping.tiling.short
    found = torch.zeros_like(wanted)
    CudaKernel(kernel.text).on_tensors(x, found)
    assert torch.equal(found, wanted)
