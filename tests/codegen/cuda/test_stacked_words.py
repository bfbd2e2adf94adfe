"""Elements of a word that are loaded from different places are stored together; kernels run as numpy runs their PTX."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor
from torch._inductor import config

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

CASES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...], torch.dtype, int]] = {
    # Function, shapes, dtype, elements of a thread's step.
    "stack, odd": (lambda x, y: torch.stack((x, y * 2), -1), ((41, 31), (41, 31)), torch.bfloat16, 2),
    "stack, even": (lambda x, y: torch.stack((x, y * 2), -1), ((40, 32), (40, 32)), torch.bfloat16, 8),
    "pixel shuffle": (lambda x: F.pixel_shuffle(x, 2), ((2, 8, 7, 9),), torch.float16, 2),
    "four bytes": (lambda x: F.pixel_shuffle(x, 4), ((2, 16, 5, 7),), torch.int8, 4),
    "three are no word": (lambda *x: torch.stack(x, -1), ((21, 13),) * 3, torch.bfloat16, 1),
    "neighbours are words already": (lambda x: x[:, ::2] + 1, ((12, 6, 2),), torch.bfloat16, 2),
}


@pytest.mark.parametrize("case", CASES)
def test_stored_as_words(case: str, needs_intrinsics: None) -> None:
    """Of single elements each store of a warp wrote every second one: two of 4099 x 2001 bfloat16 24.1 us on an H200,
    so 21.0 us (Triton 20.7 us)."""
    function, shapes, dtype, elements = CASES[case]
    generator = torch.Generator().manual_seed(0)
    tensors = tuple(torch.randint(-9, 9, shape, generator=generator).to(dtype) for shape in shapes)
    with config.patch(force_pointwise_cat=True):
        (program,) = programs_of(function, tensors)
    kernel = plan_kernel(program, device_of(TARGET))
    assert kernel.plan.mapping.tiling is not None and kernel.plan.mapping.tiling.elements == elements
    wanted = function(*tensors)
    found, cuda = torch.full_like(wanted, -7), CudaKernel(kernel.text)
    cuda.on_tensors(*tensors, found)
    assert torch.equal(found, wanted)
    assert ("st.global.b16" in cuda.code) == (elements == 1) and "st.global.b8" not in cuda.code
