"""Floats as small integers and back."""

from __future__ import annotations

import torch
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import Operands, matrices


def _quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True) / 127
    return torch.clamp(torch.round(wide / scale), -128, 127).to(torch.int8), scale


def _round_trip(x: Tensor) -> Tensor:
    codes, scale = _quantise(x)
    return (codes.float() * scale).to(x.dtype)


def _static(x: Tensor) -> Tensor:
    return torch.clamp(torch.round(x.float() * 25.0) + 10, 0, 255).to(torch.uint8)


def _codes(make: Operands) -> tuple[Tensor, ...]:
    return (*make.of(torch.int8).matrices(1), make(make.rows, 1))


def _nibbles(make: Operands) -> tuple[Tensor, ...]:
    packed = torch.randint(0, 256, (make.rows, make.columns // 2), device=make.device, dtype=torch.uint8)
    return (packed, make(make.rows, 1))


def _unpacked(packed: Tensor, scale: Tensor) -> Tensor:
    low, high = (packed & 15).to(scale.dtype) - 8, (packed >> 4).to(scale.dtype) - 8
    return torch.stack((low, high), -1).flatten(-2) * scale


def _requantised_sum(x: Tensor, y: Tensor) -> Tensor:
    return torch.clamp(torch.round((x.float() * 0.5 + y.float() * 0.25) * 0.75), -128, 127).to(torch.int8)


KERNELS = (
    Kernel("quantise", _quantise, matrices(1)),
    Kernel("quantise_static", _static, matrices(1)),
    Kernel("dequantise", _round_trip, matrices(1)),
    Kernel("dequantise_rows", lambda codes, scale: codes.to(scale.dtype) * scale, _codes),
    Kernel("dequantise_4_bits", _unpacked, _nibbles),
    Kernel("requantised_sum", _requantised_sum, matrices(2), ("int8",)),
    Kernel("int8_add", lambda x, y: (x >> 1) + (y >> 1), matrices(2), ("int8",)),
    Kernel("int8_relu", lambda x: torch.clamp(x, min=0), matrices(1), ("int8",)),
)
