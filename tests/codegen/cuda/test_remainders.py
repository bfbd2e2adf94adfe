"""Remainders of float32 on CUDA, as numpy runs their PTX, against numpy's, which are exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

SPECIAL = (
    0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38, 1.17549435e-38, 3.4e38, 3.4028235e38,
    0.7, 3.0, -7.0, 2.0**23, 2.0**24 - 1, 1.9999999, 2.0**-126 * 1.9999999,
)  # fmt: skip


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    """Of every exponent; quotients about the end of the short way, and such as are whole or all but whole."""
    random = np.random.default_rng(0)
    special = np.array(list(itertools.product(SPECIAL, SPECIAL)), np.float32)
    anything = random.integers(0, 2**32, (6_000, 2), np.uint32).view(np.float32)
    y = random.uniform(1, 2, 6_000).astype(np.float32)
    times = (y * np.exp2(random.uniform(-2, 22, 6_000)).astype(np.float32).round()).astype(np.float32)
    near = np.nextafter(times, np.float32(np.inf) * random.choice([-1, 1], 6_000).astype(np.float32))
    wide = (random.uniform(1, 2, 6_000) * np.exp2(random.uniform(10, 28, 6_000))).astype(np.float32)
    pairs = np.concatenate([special, anything, *(np.stack((x, y), 1) for x in (times, near, wide))])
    return torch.from_numpy(pairs[:, 0].copy()), torch.from_numpy(pairs[:, 1].copy())


def computed(function: object, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (program,) = programs_of(function, (x, y))
    found = torch.full_like(x, -7)
    CudaKernel(plan_kernel(program, device_of(TARGET)).text).on_tensors(x, y, found)
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_fmod_is_exact(needs_intrinsics: None) -> None:
    x, y = operands()
    found, wanted = computed(torch.fmod, x, y), torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    number = ~wanted.isnan()
    assert torch.equal(torch.signbit(found[number]), torch.signbit(wanted[number]))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_remainder_has_the_sign_of_the_divisor(needs_intrinsics: None) -> None:
    x, y = operands()
    found = computed(torch.remainder, x, y)
    rest = torch.from_numpy(np.fmod(x.numpy(), y.numpy()))
    wanted = torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
