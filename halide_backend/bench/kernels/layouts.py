"""Where elements lie: every permutation of three and four dimensions, and parts put together and taken apart."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import Operands, boxes, images, matrices

_ALL = ("float32", "bfloat16", "int8")


def _permuted(order: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    return lambda x: x.permute(order).contiguous()


def _four(make: Operands) -> tuple[Tensor, ...]:
    """(batch, tokens, heads, size)."""
    heads, size = (8, 64) if make.columns % 2 == 0 else (7, 33)
    tokens = 64 if make.columns % 2 == 0 else 61
    return (make(max(1, make.elements // (heads * size * tokens)), tokens, heads, size),)


def _transposed(make: Operands) -> tuple[Tensor, ...]:
    return (*make.matrices(1), make(make.columns, make.rows))


def _permutations(dimensions: int, operands: Callable[[Operands], tuple[Tensor, ...]]) -> tuple[Kernel, ...]:
    return tuple(
        Kernel(f"permute_{''.join(map(str, order))}", _permuted(order), operands)
        for order in permutations(range(dimensions))
        if order != tuple(range(dimensions))
    )


def _im2col(x: Tensor) -> Tensor:
    return F.unfold(x, 3, padding=1)


def _windows(x: Tensor) -> Tensor:
    return x.unfold(-1, 16, 8) * 2


def _shuffled(x: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    return x.view(batch, 4, channels // 4, height, width).transpose(1, 2).reshape(x.shape)


KERNELS = (
    Kernel("transpose", lambda x: x.t().contiguous(), matrices(1), _ALL),
    Kernel("transpose_add", lambda x, y: x.t() + y, _transposed, _ALL),
    Kernel("transpose_gelu", lambda x: F.gelu(x.t().contiguous()), matrices(1)),
    *_permutations(3, boxes()),
    *_permutations(4, _four),
    Kernel("permute", lambda x: x.permute(0, 2, 3, 1).contiguous(), images(), _ALL),
    Kernel("channels_to_last", lambda x: x.contiguous(memory_format=torch.channels_last), images(), _ALL),
    Kernel("channels_to_first", lambda x: x.contiguous(), images(channels_last=True), _ALL),
    Kernel(
        "scaled_to_last",
        lambda x, w: (x * w[:, None, None]).relu().contiguous(memory_format=torch.channels_last),
        images(1),
    ),
    Kernel("scaled_to_first", lambda x, w: (x * w[:, None, None]).relu().contiguous(), images(1, channels_last=True)),
    Kernel("copy", lambda x: x.clone(), matrices(1), _ALL),
    Kernel("concat", lambda x, y: torch.cat((x, y + 1), -1), matrices(2), _ALL),
    Kernel("concat_rows", lambda x, y: torch.cat((x, y + 1), 0), matrices(2)),
    Kernel("concat_strided", lambda x, y: torch.cat((x[:, ::2], y[:, 1::2]), -1), matrices(2)),
    Kernel("concat_channels", lambda x, y: torch.cat((x, y.relu()), 1), images(count=2)),
    Kernel("concat_channels_last", lambda x, y: torch.cat((x, y.relu()), 1), images(count=2, channels_last=True)),
    Kernel("stack", lambda x, y: torch.stack((x, y), -1), matrices(2)),
    Kernel("slice", lambda x: x[:, 1:-1] * 2, matrices(1)),
    Kernel("slice_strided", lambda x: x[:, ::3] * 2, matrices(1)),
    Kernel("split_add", lambda x: sum(part[:, :100] for part in x.split(100, -1)[:-1]), matrices(1)),
    Kernel("pad", lambda x: F.pad(x, (1, 3, 2, 2)) * 2, matrices(1), _ALL),
    Kernel("pad_reflect", lambda x: F.pad(x, (2, 2, 2, 2), mode="reflect"), images()),
    Kernel("pad_replicate", lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate") + 1, images()),
    Kernel("roll", lambda x: x.roll((3, 5), (0, 1)), matrices(1)),
    Kernel("flip", lambda x: x.flip(-1) + x, matrices(1)),
    Kernel("im2col", _im2col, images()),
    Kernel("windows", _windows, matrices(1)),
    Kernel("repeat_interleave", lambda x: x.repeat_interleave(2, -1), matrices(1)),
    Kernel("tile", lambda x: x.repeat(2, 2), matrices(1)),
    Kernel("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), images()),
    Kernel("channel_shuffle", _shuffled, images()),
)
