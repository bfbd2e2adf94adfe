"""Conditions, masks of bool and chains of `where`."""

from __future__ import annotations

import torch
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import Operands, matrices


def _chain(x: Tensor) -> Tensor:
    low = torch.where(x < -1, -1 - 0.1 * x, x)
    middle = torch.where(x.abs() < 0.25, torch.zeros_like(x), low)
    return torch.where(x > 2, 2 + torch.log1p(x.abs()), middle)


def _with_mask(make: Operands) -> tuple[Tensor, ...]:
    return (*make.matrices(1), *make.of(torch.bool).matrices(1))


def _two_masks(make: Operands) -> tuple[Tensor, ...]:
    return make.of(torch.bool).matrices(2)


def _masked_mean(x: Tensor, m: Tensor) -> Tensor:
    return (x * m).sum(-1) / m.sum(-1).clamp(min=1)


KERNELS = (
    Kernel("masked_fill", lambda x, m: x.masked_fill(m, 0.5), _with_mask),
    Kernel("where_chain", _chain, matrices(1)),
    Kernel("where_of_two", lambda x, y: torch.where(x > y, x * 2, y - 1), matrices(2)),
    Kernel("masks_joined", lambda m, n: (m & ~n) | (n ^ m), _two_masks, ("bool",)),
    Kernel("lower_triangle", torch.tril, matrices(1)),
    Kernel("masked_mean", _masked_mean, _with_mask),
    Kernel("clamped", lambda x: torch.clamp(x, -1, 1), matrices(1), ("float32", "bfloat16", "int8")),
    Kernel("finite_or_zero", lambda x: torch.where(torch.isfinite(x), x, torch.zeros_like(x)), matrices(1)),
    Kernel("count_mask", lambda m, n: (m & n).sum(-1), _two_masks, ("bool",)),
)
