"""What is stored several times in a row, as by an upsampling by three, is stored in vectors all the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from captured_kernels import captured_kernels
from cuda_programs import TARGET, checked, ptx_of
from kernel_values import check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "upsampling": lambda x: F.interpolate(x, scale_factor=3.0, mode="nearest"),
    "columns": lambda x: x[..., None].expand(*x.shape, 5).reshape(*x.shape[:-1], -1) * 2,
}


@pytest.mark.parametrize(("dtype", "elements"), [(torch.float32, 4), (torch.bfloat16, 8)], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_thread_stores_a_vector(name: str, dtype: torch.dtype, elements: int, needs_intrinsics: None) -> None:
    x = torch.randn(2, 3, 5, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    (captured,) = captured_kernels(FUNCTIONS[name], (x,), TARGET)
    plan = plan_kernel(captured.program, device_of(TARGET)).plan
    assert plan.mapping.tiling is not None and plan.mapping.tiling.elements == elements
    assert checked(ptx_of(captured.program)).wide_stores > 0
    check_values(FUNCTIONS[name], x)


def test_elements_that_differ_are_stored_one_by_one() -> None:
    """Each has a factor of its own, which is loaded for each."""
    (captured,) = captured_kernels(lambda x, w: x[..., None] * w, (torch.empty(64, 48), torch.empty(3)), TARGET)
    plan = plan_kernel(captured.program, device_of(TARGET)).plan
    assert plan.mapping.tiling is not None and plan.mapping.tiling.elements == 1
