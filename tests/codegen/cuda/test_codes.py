"""Small integers that numbers are rounded to after a division by what many of them share."""

from __future__ import annotations

import math

import pytest
import torch
from kernel_values import check_values
from torch import Tensor


def codes(x: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.view(x.shape[0], -1, 32).float()
    scale = rows.abs().amax(-1, keepdim=True) / 127
    return torch.clamp(torch.round(rows / scale), -128, 127).to(torch.int8), scale


def numbers(dtype: torch.dtype) -> Tensor:
    """Rows of 64 of every size, zeros among them, and such whose quotients lie halfway between two integers."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 64, generator=generator) * torch.logspace(-38, 38, 64).unsqueeze(1)
    x[::7, 5:40] = 0
    x[11] = 0
    x[13, ::2] = 1e-40
    for row, scale in ((20, 1.0), (21, 2.0**-80), (22, 2.0**90), (23, 0.375)):
        x[row] = scale * (torch.arange(64) * 2 - 63) / 2
        x[row, ::32] = scale * 127
    return x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_codes_are_those_of_ieee_division(dtype: torch.dtype, needs_intrinsics: None) -> None:
    """By `divide_by_shared` a code of bfloat16 took 32 instructions, and takes 21."""
    (kernel,) = check_values(codes, numbers(dtype))
    form = "divide_bfloat16_into_code" if dtype is torch.bfloat16 else "divide_into_code"
    assert f"ops.{form}(" in kernel.text
    assert "setp.num.f32" not in kernel.code and "copysign" not in kernel.code


def test_infinities_and_nan_have_codes_too(needs_intrinsics: None) -> None:
    x = numbers(torch.bfloat16)
    x[3, 7], x[4, 40], x[5, 9] = math.inf, -math.inf, math.nan

    def function(x: Tensor, scale: Tensor) -> Tensor:
        return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8)

    scale = torch.full((64, 1), 0.25)
    scale[1], scale[2], scale[6], scale[7] = 0, math.inf, 1e-42, 3e38
    (kernel,) = check_values(function, x.float(), scale)
    assert "ops.divide_into_code(" in kernel.text


def test_what_shows_keeps_its_last_bits(needs_intrinsics: None) -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        quotient = x / x.abs().amax(-1, keepdim=True)
        return quotient, torch.round(quotient * 100).to(torch.int8)

    (kernel,) = check_values(function, numbers(torch.float32)[24:48])
    assert "into_code" not in kernel.text and "ops.divide_by_shared(" in kernel.text
