"""Random operands of a size: matrices, rows of one width, images, heads of attention."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

#: Makes the operands of a kernel.
Maker = Callable[["Operands"], tuple[Tensor, ...]]

#: Channels of an image.
CHANNELS = 32


@dataclass(frozen=True)
class Operands:
    """Makes operands with about `rows` x `columns` elements each, all of one dtype, on one device."""

    rows: int
    columns: int
    dtype: torch.dtype
    device: str

    def __call__(self, *shape: int) -> Tensor:
        """Normal numbers; small integers, positive and negative, in an integer type; half of bool is true."""
        if self.dtype == torch.bool:
            return torch.rand(shape, device=self.device) > 0.5
        if self.dtype.is_floating_point:
            return torch.randn(shape, device=self.device, dtype=self.dtype)
        return torch.randint(-100, 100, shape, device=self.device, dtype=self.dtype)

    @property
    def elements(self) -> int:
        """Elements of a matrix."""
        return self.rows * self.columns

    def of(self, dtype: torch.dtype) -> Operands:
        """The same in another dtype."""
        return replace(self, dtype=dtype)

    def indices(self, count: int, below: int) -> Tensor:
        """`count` numbers of int64 from 0 to `below` - 1."""
        return torch.randint(0, below, (count,), device=self.device)

    def matrices(self, count: int) -> tuple[Tensor, ...]:
        """`count` matrices of `rows` x `columns`."""
        return tuple(self(self.rows, self.columns) for _ in range(count))

    def in_rows_of(self, width: int) -> Tensor:
        """A matrix of as many elements with `width` columns."""
        return self(max(1, self.elements // width), width)

    def box(self) -> Tensor:
        """Three dimensions, the last two of `side` or near it, none a multiple of a vector where `columns` is odd."""
        middle = 24 if self.columns % 2 == 0 else 23
        return self(max(1, self.rows // middle), middle, self.columns)

    def images(self, channels: int = CHANNELS) -> Tensor:
        """Square images of `channels`; their side is odd where `columns` is."""
        side = 56 if self.columns % 2 == 0 else 55
        if self.elements < channels * side * side:
            side = max(7, math.isqrt(self.elements // channels) | 1)
        return self(max(1, self.elements // (channels * side * side)), channels, side, side)

    def heads(self, size: int = 64) -> Tensor:
        """(batch, 4 heads, tokens, `size`) of attention; as many tokens as rows, at most 1024."""
        tokens = min(self.rows, 1024)
        return self(max(1, self.elements // (4 * tokens * size)), 4, tokens, size)

    def scores(self) -> Tensor:
        """(batch, 4 heads, tokens, tokens) of attention."""
        tokens = min(512 if self.columns % 2 == 0 else 509, max(8, math.isqrt(self.elements // 4)))
        return self(max(1, self.elements // (4 * tokens * tokens)), 4, tokens, tokens)


def matrices(count: int) -> Maker:
    """`count` matrices."""
    return lambda make: make.matrices(count)


def in_rows_of(width: int, count: int = 1) -> Maker:
    """`count` matrices of `width` columns."""
    return lambda make: tuple(make.in_rows_of(width) for _ in range(count))


def with_columns(count: int, width: int = 0) -> Maker:
    """A matrix, of `width` columns if that is given, and `count` vectors as long as its rows."""

    def made(make: Operands) -> tuple[Tensor, ...]:
        matrix = make.in_rows_of(width) if width else make(make.rows, make.columns)
        return (matrix, *(make(matrix.shape[1]) for _ in range(count)))

    return made


def boxes(count: int = 1) -> Maker:
    """`count` tensors of three dimensions."""
    return lambda make: tuple(make.box() for _ in range(count))


def images(vectors: int = 0, *, count: int = 1, channels_last: bool = False, channels: int = CHANNELS) -> Maker:
    """`count` batches of images and `vectors` vectors of their channels."""
    layout = torch.channels_last if channels_last else torch.contiguous_format

    def made(make: Operands) -> tuple[Tensor, ...]:
        pictures = (make.images(channels).contiguous(memory_format=layout) for _ in range(count))
        return (*pictures, *(make(channels) for _ in range(vectors)))

    return made


def with_like(first: Maker, function: Callable[..., Tensor]) -> Maker:
    """What `first` makes, and a gradient for the result of `function`."""

    def made(make: Operands) -> tuple[Tensor, ...]:
        operands = first(make)
        result = function(*operands)
        layout = torch.channels_last if _is_channels_last(result) else torch.contiguous_format
        return (*operands, make.of(result.dtype)(*result.shape).contiguous(memory_format=layout))

    return made


def _is_channels_last(tensor: Tensor) -> bool:
    if tensor.dim() != 4 or tensor.is_contiguous():
        return False
    return bool(tensor.is_contiguous(memory_format=torch.channels_last))


def labelled(make: Operands) -> tuple[Tensor, ...]:
    """A matrix and one of its columns for each row."""
    return (*make.matrices(1), make.indices(make.rows, make.columns))
