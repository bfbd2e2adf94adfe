"""Softmax on CUDA, as numpy runs its PTX: exponentials and quotients in few instructions, rows that are masked."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from cuda_programs import TARGET, Ptx, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

LEAST = torch.finfo(torch.float32).min


def computed(function: Callable[..., Tensor], *operands: Tensor) -> tuple[Tensor, str]:
    """What the kernel of `function` makes of `operands`, which it takes in their order, and the kernel's text."""
    (program,) = programs_of(function, operands)
    text = plan_kernel(program, device_of(TARGET)).text
    found = torch.full_like(function(*operands), -7)
    CudaKernel(text).on_tensors(*operands, found)
    return found, text


def scores(dtype: torch.dtype) -> Tensor:
    """Rows of anything, among them one of -inf, one of the least number, one with NaN and one with infinity."""
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(0)) * 20
    x[1], x[2], x[3, 5], x[4, 7], x[5, :100] = -torch.inf, LEAST, torch.nan, torch.inf, -torch.inf
    return x.to(dtype)


def safe_softmax(x: Tensor) -> Tensor:
    """As torch decomposes attention with a mask: a row that is masked as a whole is zero."""
    probabilities = torch.softmax(x, -1)
    masked = (x == -torch.inf).all(-1, keepdim=True)
    return torch.where(masked, torch.zeros_like(probabilities), probabilities)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_into_16_bits(needs_intrinsics: None) -> None:
    x = scores(torch.bfloat16)
    found, text = computed(lambda x: torch.softmax(x, -1), x)
    assert "rough_exp(" in text and "rough_divide_by_sum(" in text
    torch.testing.assert_close(found, torch.softmax(x.double(), -1).bfloat16(), rtol=2**-7, atol=1e-37, equal_nan=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_float32_keeps_denormal_results(needs_intrinsics: None) -> None:
    x = scores(torch.float32)
    x[0, 0], x[0, 1:] = 0.0, -88.0
    found, text = computed(lambda x: torch.softmax(x, -1), x)
    assert "rough_exp(" not in text and "rough_divide_by_sum(" in text
    # The roundings of log2(e) and of the product are up to 1.5 units of the exponential for each unit of x.
    torch.testing.assert_close(found, torch.softmax(x.double(), -1).float(), rtol=2e-5, atol=1e-44, equal_nan=True)
    assert float(found[0, 1]) > 0


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masked_rows_are_found_by_their_maximum(needs_intrinsics: None, dtype: torch.dtype) -> None:
    x = scores(dtype)
    found, text = computed(safe_softmax, x)
    assert "reductions.encode('max'" in text and "reductions.encode('any'" not in text
    torch.testing.assert_close(found, safe_softmax(x.double()).to(dtype), rtol=2**-7, atol=1e-37, equal_nan=True)
    assert bool((found[1] == 0).all())


def test_a_comparison_that_is_needed_elsewhere_stays(needs_intrinsics: None) -> None:
    def counted(x: Tensor) -> Tensor:
        infinite = x == -torch.inf
        return torch.where((~infinite).any(-1, keepdim=True), x - x.amax(-1, keepdim=True), 0.0) + infinite.float()

    x = torch.randn(64, 128)
    x[1], x[5, :100] = -torch.inf, -torch.inf
    found, text = computed(counted, x)
    assert "reductions.encode('any'" in text
    torch.testing.assert_close(found, counted(x), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_shared_quotient_into_16_bits(needs_intrinsics: None) -> None:
    """Divisors of any size, with dividends for which the quotient is a number."""
    sizes = [1.0, -3.0, 1e-45, -1.1e-38, 1.2e-38, 2.0**126, 3.4e38, 0.0, -0.0, torch.inf, -torch.inf, torch.nan]
    y = torch.tensor(sizes, dtype=torch.float32)[:, None]
    special = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, 3e38, 1.0])
    x = torch.cat((torch.randn(12, 56, generator=torch.Generator().manual_seed(0)), special.expand(12, 8)), 1)
    x[2:5] *= 1e-30
    found, text = computed(lambda x, y: (x / y).bfloat16(), x, y)
    assert "rough_divide_by_shared(" in text
    torch.testing.assert_close(found, (x / y).bfloat16(), rtol=2**-7, atol=1e-37, equal_nan=True)


def test_one_reciprocal_for_a_line(compiled_ptx: Callable[..., Ptx]) -> None:
    code = compiled_ptx(lambda x: torch.softmax(x, -1), torch.rand(4096, 256, dtype=torch.bfloat16))
    assert (code.count(r"rcp\."), code.count(r"div\."), code.count(r"ex2\.approx\.ftz")) == (1, 0, 8)
    shared = compiled_ptx(lambda x, y: x / y, torch.rand(64, 64, dtype=torch.bfloat16), torch.rand(64, 1) + 1)
    assert (shared.count(r"rcp\.approx"), shared.count(r"div\.full")) in ((1, 0), (0, 0))
    looped = compiled_ptx(lambda x: torch.softmax(x, -1), torch.rand(100, 60_000))
    assert (looped.count(r"rcp\."), looped.count(r"div\.")) == (1, 0)
    assert re.search(r"rough_divide_by_sum", looped.text)
