"""Functions into 16 bits on CUDA, as numpy runs their PTX, against torch's in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from cuda_programs import TARGET, programs_of
from function_truth import SPECIAL_FUNCTIONS, name, truth
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

LOGARITHMS = [torch.log, torch.log2, torch.log10]
FUNCTIONS = [
    *(torch.acos, torch.acosh, torch.asin, torch.asinh, torch.atan, torch.atanh, torch.cosh, torch.sinh, torch.tan),
    *(*LOGARITHMS, *SPECIAL_FUNCTIONS),
]


def computed(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    (program,) = programs_of(function, (x,))
    text = plan_kernel(program, device_of(TARGET)).text
    assert "ops.rough_" in text and "mathematics." not in text
    found = torch.full_like(x, -7)
    CudaKernel(text).on_tensors(x, found)
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_every_bfloat16(needs_intrinsics: None, function: Callable[[Tensor], Tensor]) -> None:
    """All 65,536, NaN and infinities among them, are right but where they lie between two results."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    found, wanted = computed(function, x), truth(function, x)
    exact, number = wanted.bfloat16(), ~wanted.isnan()
    torch.testing.assert_close(found, exact, rtol=2**-7, atol=2e-38, equal_nan=True)
    assert torch.equal(found.isnan(), ~number)
    assert torch.equal(torch.signbit(found[number]), torch.signbit(exact[number]))
    assert float((found != exact)[number].float().mean()) < 0.01


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_errors(needs_intrinsics: None, function: Callable[[Tensor], Tensor]) -> None:
    """Within 2**-16 of what is right, seen through differences from it that 16 bits resolve."""
    random = np.random.default_rng(0)
    parts = [random.uniform(-1, 1, 8_000), random.uniform(-9, 9, 8_000), np.exp(random.uniform(-40, 40, 8_000))]
    x = torch.from_numpy(np.concatenate([*parts, 1 + np.exp(random.uniform(-14, 0, 4_000))]).astype(np.float32))
    wanted = truth(function, x)
    normal = wanted.float().isfinite() & (wanted.abs() > 2.0**-126)
    x, wanted = x[normal], wanted[normal]
    exact = wanted.float()
    size = exact.abs()
    if function in (torch.digamma, torch.lgamma):
        # Of zeros at negative arguments it is the absolute error.
        size[x < 0] = size[x < 0].clamp(min=1)
    (program,) = programs_of(lambda x, y, size: ((function(x) - y) / size).bfloat16(), (x, exact, size))
    text = plan_kernel(program, device_of(TARGET)).text
    assert f"ops.rough_{name(function)}(" in text
    found = torch.full_like(exact, -7, dtype=torch.bfloat16)
    CudaKernel(text).on_tensors(x, exact, size, found)
    assert float(found.float().abs().max()) < 2**-16


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_area_hyperbolic_tangent_beyond_one(needs_intrinsics: None) -> None:
    """NaN of every |x| above 1, also where the reciprocal of 1 - |x| would be zero, and where 2 |x| overflows."""
    x = torch.tensor([1 + 2**-23, 1.5, 3e20, 2.0**126, 1.5 * 2.0**126, 2.0**127, 3.4e38, float("inf")] * 16)
    (program,) = programs_of(lambda x: torch.atanh(x).bfloat16(), (torch.cat((x, -x)),))
    text = plan_kernel(program, device_of(TARGET)).text
    assert "ops.rough_atanh(" in text
    found = torch.zeros(len(x) * 2, dtype=torch.bfloat16)
    CudaKernel(text).on_tensors(torch.cat((x, -x)), found)
    assert bool(found.isnan().all())


@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_not_where_last_bits_show(function: Callable[[Tensor], Tensor]) -> None:
    """Nor of float64, which the special function unit has not."""
    for shown in (function, lambda x: function(x.double()).bfloat16()):
        (program,) = programs_of(shown, (torch.rand(512),))
        assert "ops.rough_" not in plan_kernel(program, device_of(TARGET)).text
