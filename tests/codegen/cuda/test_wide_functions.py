"""Functions of float32 in float64 on CUDA, as numpy runs their PTX, against torch's in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from cuda_programs import TARGET, Ptx, programs_of
from function_truth import SPECIAL_FUNCTIONS, name, truth
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of

FUNCTIONS = [torch.acos, torch.acosh, torch.asin, torch.asinh, torch.atan, torch.atanh, torch.tan, *SPECIAL_FUNCTIONS]
#: Of what has not one number that is converted; lgamma has two of its three in a branch.
CONVERSIONS = {
    torch.digamma: 2,
    torch.lgamma: 3,
    **dict.fromkeys((torch.special.erfcx, torch.special.i0e, torch.special.i1e), 2),
}
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.0,
    -3.0,
    3e-45,
    -3e-45,
    1e-39,
    -8388607.5,
    3.4e38,
    -3.4e38,
    math.inf,
    -math.inf,
    math.nan,
]


def computed(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    (program,) = programs_of(function, (x,))
    text = plan_kernel(program, device_of(TARGET)).text
    assert f"ops.{name(function)}(" in text
    found = torch.full_like(x, -7)
    CudaKernel(text).on_tensors(x, found)
    return found


def arguments() -> Tensor:
    """Of all sizes, near 1 from both sides, and near multiples of pi/2."""
    random = np.random.default_rng(0)
    sizes, near = np.exp(random.uniform(-100, 88, 20_000)), np.exp(random.uniform(-17, 0, 6_000))
    turns = np.rint(np.exp(random.uniform(0, 30, 12_000))) * (math.pi / 2)
    parts = [random.uniform(-1, 1, 20_000), random.uniform(-12, 12, 12_000), sizes, -sizes, 1 + near, 1 - near, turns]
    return torch.from_numpy(np.concatenate(parts).astype(np.float32))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_errors(needs_intrinsics: None, function: Callable[[Tensor], Tensor]) -> None:
    """Those of the CPU's functions (docs/reference/accuracy.md), also with 19 bits from the special function unit."""
    x = arguments()
    wanted, found = truth(function, x), computed(function, x)
    assert torch.equal(found.isnan(), wanted.isnan())
    number, infinite = wanted.float().isfinite(), wanted.float().isinf()
    assert torch.equal(found[infinite], wanted[infinite].float())
    size = np.abs(wanted.numpy())
    if function in (torch.digamma, torch.lgamma):
        # Of zeros at negative arguments it is the absolute error.
        size = np.where(x.numpy() < 0, np.maximum(size, 1), size)
    ulp = torch.from_numpy(np.spacing(size[number.numpy()].astype(np.float32))).double()
    most = 0.51 if function is torch.erfinv else 0.503 if function in SPECIAL_FUNCTIONS else 0.501
    assert float(((found[number].double() - wanted[number]).abs() / ulp).max()) < most


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_special_values(needs_intrinsics: None, function: Callable[[Tensor], Tensor]) -> None:
    x = torch.tensor(SPECIAL * 4)
    found, wanted = computed(function, x), truth(function, x).float()
    number = ~wanted.isnan()
    assert torch.equal(found.isnan(), ~number) and torch.equal(found[number], wanted[number])
    assert torch.equal(torch.signbit(found[number]), torch.signbit(wanted[number]))


@pytest.mark.parametrize("function", FUNCTIONS, ids=name)
def test_no_division_and_few_conversions(
    function: Callable[[Tensor], Tensor], to_ptx: Callable[[LoopProgram], Ptx]
) -> None:
    """Of four elements of a thread; where a tangent goes the long way, or lgamma is reflected, they have others."""
    (program,) = programs_of(function, (torch.rand(512, 64),))
    code = to_ptx(program)
    assert code.count(r"(?:div|sqrt)\.rn\.f64") == 0
    assert code.count(r"cvt\.f64\.f32") == 4 * CONVERSIONS.get(function, 1)
    assert code.count(r"cvt\.rn\.f32\.f64") == 4
    assert code.count(r"cvt\.\S*f64\.s32") == (4 if function is torch.lgamma else 0)
