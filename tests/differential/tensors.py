"""Input tensors of a random program, described by data so that a seed or a listing rebuilds them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

#: Values that kernels get wrong first. The square of the last one overflows. A sum of as many as a tensor may have does
#: not: where partial sums overflow, their order decides between infinity and NaN (seeds 7785, 39294). Nor does the
#: square of its rounding error, which makes infinity of the variance of equal numbers (seed 89623), and infinity or NaN
#: with Inductor's C++ backend.
SPECIAL = (math.nan, math.inf, -math.inf, -0.0, 0.0, 1e-41, -1e-45, 1.0, -1.0, 65504.0, -1e22)


@dataclass(frozen=True)
class Tensor:
    """A tensor of `shape` and `dtype`.

    `content` is "normal", "special" (normal with NaN, infinities, zeros of both signs and denormals), "whole" (small
    whole numbers), "wide" (the whole range of an integer type) or "index:N" (valid indices of a dimension of size N),
    "permutation:N" (distinct ones). `layout` is "contiguous", "permuted" (dimensions reversed in memory), "sliced"
    (every second element of a larger tensor), "stepped" (every second of its rows), "channels_last" (the second dimension
    innermost), "offset" (starts inside its storage), "expanded" (stride 0 in its first dimension), "repeated" (in its
    last one) or "overlapping" (each row begins one element after the one before).
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    content: str
    layout: str
    seed: int

    def make(self) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        values = _content(self, generator)
        return _LAYOUTS[self.layout](values)

    def __str__(self) -> str:
        return f"{self.name}: {tuple(self.shape)} {str(self.dtype)[6:]} {self.content} {self.layout} seed {self.seed}"


def _content(tensor: Tensor, generator: torch.Generator) -> torch.Tensor:
    shape, dtype = tensor.shape, tensor.dtype
    kind, _, limit = tensor.content.partition(":")
    if kind == "permutation":
        return torch.randperm(int(limit), generator=generator)[: math.prod(shape)].reshape(shape).to(dtype)
    if kind == "index":
        return torch.randint(0, int(limit), shape, generator=generator).to(dtype)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if kind == "wide":
        info = torch.iinfo(dtype)
        words = torch.randint(-(2**62), 2**62, shape, generator=generator) * 2
        words += torch.randint(0, 2, shape, generator=generator)
        extremes = torch.tensor([info.min, info.max, 0, 1])[torch.randint(0, 4, shape, generator=generator)]
        return torch.where(torch.rand(shape, generator=generator) < 0.1, extremes, words.to(dtype).to(torch.int64)).to(
            dtype
        )
    if kind == "whole" or not dtype.is_floating_point:
        low = -9 if dtype.is_signed else 0
        return torch.randint(low, 10, shape, generator=generator).to(dtype)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if kind == "special":
        chosen = torch.tensor(SPECIAL, dtype=torch.float64)[torch.randint(0, len(SPECIAL), shape, generator=generator)]
        values = torch.where(torch.rand(shape, generator=generator) < 0.15, chosen, values)
    return values.to(dtype)


def _permuted(values: torch.Tensor) -> torch.Tensor:
    order = tuple(reversed(range(values.dim())))
    return values.permute(order).contiguous().permute(order)


def _sliced(values: torch.Tensor) -> torch.Tensor:
    if values.dim() == 0:
        return values
    storage = torch.zeros((*values.shape[:-1], 2 * values.shape[-1] + 1), dtype=values.dtype)
    view = storage[..., 1::2]
    view.copy_(values)
    return view


def _offset(values: torch.Tensor) -> torch.Tensor:
    storage = torch.zeros(values.numel() + 3, dtype=values.dtype)
    view = storage[3:].view(values.shape)
    view.copy_(values)
    return view


def _expanded(values: torch.Tensor) -> torch.Tensor:
    if values.dim() == 0 or values.shape[0] == 0:
        return values
    return values[:1].clone().expand(values.shape)


def _stepped(values: torch.Tensor) -> torch.Tensor:
    if values.dim() == 0:
        return values
    storage = torch.zeros((2 * values.shape[0] + 1, *values.shape[1:]), dtype=values.dtype)
    view = storage[1::2]
    view.copy_(values)
    return view


def _channels_last(values: torch.Tensor) -> torch.Tensor:
    return values if values.dim() < 2 else values.movedim(1, -1).contiguous().movedim(-1, 1)


def _repeated(values: torch.Tensor) -> torch.Tensor:
    if values.dim() == 0 or values.shape[-1] == 0:
        return values
    return values[..., :1].clone().expand(values.shape)


def _overlapping(values: torch.Tensor) -> torch.Tensor:
    if values.dim() < 2 or 0 in values.shape:
        return values
    lines = torch.cat([values[..., 0, :], values[..., 1:, -1]], -1)
    return lines.unfold(-1, values.shape[-1], 1)


_LAYOUTS = {
    "contiguous": lambda values: values,
    "permuted": _permuted,
    "sliced": _sliced,
    "offset": _offset,
    "expanded": _expanded,
    "stepped": _stepped,
    "channels_last": _channels_last,
    "repeated": _repeated,
    "overlapping": _overlapping,
}
