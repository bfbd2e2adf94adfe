"""Functions of functions that a GPU computes as one: softplus and mish, as numpy runs their PTX, and tanh."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, -3.4e38, 1e-45, -1e-45, 19.9999, 20.0, 20.0001, 88.8, -80.0)


def computed(function: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, CudaKernel]:
    (program,) = programs_of(function, (x,))
    found = torch.full_like(x, -7)
    kernel = CudaKernel(plan_kernel(program, device_of(TARGET)).text)
    kernel.on_tensors(x, found)
    return found, kernel


def errors(found: Tensor, wanted: Tensor) -> Tensor:
    """In units in the last place."""
    ulp = torch.from_numpy(np.spacing(np.abs(wanted.numpy()).astype(np.float32)))
    return (found - wanted).abs() / ulp


@pytest.fixture
def arguments() -> Tensor:
    random = np.random.default_rng(0)
    near, small = random.uniform(-30, 30, 30_000), random.choice([-1, 1], 8_000) * np.exp(random.uniform(-60, 0, 8_000))
    return torch.from_numpy(np.concatenate([near, small]).astype(np.float32))


def test_softplus(arguments: Tensor, needs_intrinsics: None) -> None:
    found, kernel = computed(F.softplus, arguments)
    assert "log1p_of_exp(" in kernel.text
    # The roundings of log2(e) and of the product are up to 1.5 units of the exponential for each unit of x.
    assert bool((errors(found, F.softplus(arguments.double())) < 2 + 1.5 * arguments.abs()).all())


def test_mish(arguments: Tensor, needs_intrinsics: None) -> None:
    found, kernel = computed(F.mish, arguments)
    assert "tanh_of_softplus(" in kernel.text
    assert bool((errors(found, F.mish(arguments.double())) < 4 + 1.5 * arguments.abs()).all())


def test_tanh(arguments: Tensor, needs_intrinsics: None) -> None:
    found, _ = computed(torch.tanh, arguments)
    assert float(errors(found, torch.tanh(arguments.double())).max()) < 1.5


@pytest.mark.parametrize("base", [0.9, 0.999, 3.0, 1e-30, 3e38])
def test_powers_of_a_number(base: float, arguments: Tensor, needs_intrinsics: None) -> None:
    exponents = torch.cat([arguments, torch.arange(1.0, 2000.0), torch.tensor(SPECIAL)])
    found, kernel = computed(lambda x: torch.pow(base, x), exponents)
    assert "power_of_number(" in kernel.text and "div" not in kernel.code
    wanted = torch.pow(float(np.float32(base)), exponents.double())
    assert torch.equal(found.isnan(), wanted.isnan())
    finite = wanted.float().isfinite() & (wanted > 1e-37)
    assert float(errors(found, wanted)[finite].max()) < 0.51
    assert torch.equal(found[~finite].nan_to_num(), wanted[~finite].float().nan_to_num())


def test_powers(needs_intrinsics: None) -> None:
    random = np.random.default_rng(1)
    bases = torch.from_numpy(np.exp(random.uniform(-80, 80, 38_000)).astype(np.float32))
    exponents = torch.from_numpy((random.uniform(-88, 88, 38_000) / np.log(bases.numpy())).astype(np.float32))
    bases[:2000] = 1 + torch.arange(-1000, 1000) * 2.0**-23
    exponents[:2000] = torch.linspace(-1e6, 1e6, 2000)
    found = torch.full_like(bases, -7)
    (program,) = programs_of(torch.pow, (bases, exponents))
    kernel = CudaKernel(plan_kernel(program, device_of(TARGET)).text)
    kernel.on_tensors(bases, exponents, found)
    # A GPU has half as many units for float64: bounds and special cases take none of them.
    assert "div" not in kernel.code and not re.search(r"(setp|selp)\S*\.f64", kernel.code)
    wanted = torch.pow(bases.double(), exponents.double())
    usual = (wanted > 1e-37) & wanted.float().isfinite()
    assert float(errors(found, wanted)[usual].max()) < 0.51
    assert torch.equal(found[~usual].nan_to_num(), wanted[~usual].float().nan_to_num())


def test_special_powers(needs_intrinsics: None) -> None:
    integers = (1.0, -1.0, 2.0, 3.0, -3.0, 8388609.0, 16777215.0)
    special = torch.tensor([*SPECIAL, *integers, 0.5, -2.5, 0.99999994, -0.99999994, -1.0000001, -4194303.5])
    bases, exponents = (each.reshape(-1).clone() for each in torch.meshgrid(special, special, indexing="ij"))
    (program,) = programs_of(torch.pow, (bases, exponents))
    found = torch.full_like(bases, -7)
    CudaKernel(plan_kernel(program, device_of(TARGET)).text).on_tensors(bases, exponents, found)
    torch.testing.assert_close(found, torch.pow(bases, exponents), equal_nan=True)


@pytest.mark.parametrize("base", [0.0, -2.0, float("inf")])
def test_powers_of_other_numbers_have_their_special_cases(base: float, needs_intrinsics: None) -> None:
    exponents = torch.tensor([*SPECIAL, 1.0, 2.0, 3.0, -1.0, 0.5])
    found, _ = computed(lambda x: torch.pow(base, x), exponents)
    wanted = torch.pow(base, exponents)
    torch.testing.assert_close(found, wanted, equal_nan=True)


@pytest.mark.parametrize("function", [F.softplus, F.mish, torch.tanh])
def test_special_values(function: Callable[[Tensor], Tensor], needs_intrinsics: None) -> None:
    x = torch.tensor(SPECIAL, dtype=torch.float32)
    found, wanted = computed(function, x)[0], function(x.double()).float()
    torch.testing.assert_close(found, wanted, rtol=2e-5, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(found[:2]), torch.signbit(wanted[:2]))


def test_other_thresholds_are_computed_as_written(needs_intrinsics: None) -> None:
    x = torch.linspace(-4, 4, 100)
    found, kernel = computed(lambda x: torch.tanh(F.softplus(x, threshold=1)), x)
    assert "tanh_of_softplus(" not in kernel.text
    torch.testing.assert_close(found, torch.tanh(F.softplus(x, threshold=1)), rtol=3e-6, atol=0)


def test_what_is_needed_elsewhere_stays(needs_intrinsics: None) -> None:
    x = torch.linspace(-4, 4, 64)
    (program,) = programs_of(lambda x: (torch.log1p(torch.exp(x)), torch.exp(x)), (x,))
    found = torch.zeros(64), torch.zeros(64)
    CudaKernel(plan_kernel(program, device_of(TARGET)).text).on_tensors(x, *found)
    torch.testing.assert_close(found[0], torch.log1p(torch.exp(x)))
    torch.testing.assert_close(found[1], torch.exp(x))


def test_roots_and_reciprocals_into_16_bits(needs_intrinsics: None) -> None:
    x = torch.arange(1 << 16).to(torch.int16).view(torch.bfloat16)
    found, kernel = computed(lambda x: torch.reciprocal(x.float().sqrt() + 0.5).to(x.dtype), x)
    assert "rough_sqrt(" in kernel.text and "rough_reciprocal(" in kernel.text
    wanted = (1 / (x.double().sqrt() + 0.5)).bfloat16()
    torch.testing.assert_close(found, wanted, rtol=2**-8, atol=0, equal_nan=True)


def test_reciprocal_of_one_and_an_exponential(arguments: Tensor, needs_intrinsics: None) -> None:
    """A sigmoid that is written out, as in the gradient of a SiLU: IEEE's reciprocal has a branch."""
    found, kernel = computed(lambda x: torch.reciprocal(torch.exp(-x) + 1), arguments)
    assert "ops.sigmoid(" in kernel.text and not re.search(r"(div|rcp)\.rn", kernel.code)
    wanted = torch.sigmoid(arguments.double())
    assert bool((errors(found, wanted) < 3 + 1.5 * arguments.abs()).all())
    special = torch.tensor([0.0, -0.0, np.inf, -np.inf, np.nan, 100.0, -100.0])
    found, _ = computed(lambda x: torch.reciprocal(1 + torch.exp(-x)), special)
    torch.testing.assert_close(found, torch.sigmoid(special), equal_nan=True, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("other", [lambda x: 1 / (2 + torch.exp(-x)), lambda x: torch.reciprocal(1 + torch.exp(x))])
def test_other_reciprocals_are_computed_as_written(other: Callable[[Tensor], Tensor], needs_intrinsics: None) -> None:
    x = torch.linspace(-4, 4, 100)
    found, kernel = computed(other, x)
    assert "ops.sigmoid(" not in kernel.text
    torch.testing.assert_close(found, other(x), rtol=1e-6, atol=0)


def test_reciprocal_of_a_root(needs_intrinsics: None) -> None:
    """Of the variances of a batch norm: one instruction, not some thirty with two branches."""
    x = torch.from_numpy(np.exp(np.random.default_rng(0).uniform(-80, 80, 30_000)).astype(np.float32))
    found, kernel = computed(lambda x: torch.sqrt(x).reciprocal(), x)
    assert "rsqrt.approx" in kernel.code and "sqrt.rn" not in kernel.code
    assert float(errors(found, x.double().sqrt().reciprocal()).max()) < 2.5
    special = torch.tensor([0.0, -0.0, np.inf, -1.0, np.nan])
    found, _ = computed(lambda x: torch.sqrt(x).reciprocal(), special)
    torch.testing.assert_close(found, torch.sqrt(special).reciprocal(), equal_nan=True, rtol=0, atol=0)
