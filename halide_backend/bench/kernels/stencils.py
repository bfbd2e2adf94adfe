"""Neighbours: filters of one channel at a time, written as sums of shifted slices."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import CHANNELS, Maker, Operands, images, matrices


def _shifted(x: Tensor, size: int) -> list[Tensor]:
    """The `size` x `size` neighbours of each element within, one tensor each."""
    height, width = x.shape[-2] - size + 1, x.shape[-1] - size + 1
    return [x[..., i : i + height, j : j + width] for i in range(size) for j in range(size)]


def _depthwise(x: Tensor, w: Tensor) -> Tensor:
    first, *others = (part * w[k][:, None, None] for k, part in enumerate(_shifted(x, math.isqrt(w.shape[0]))))
    return sum(others, first)


def _weights(size: int) -> Maker:
    return lambda make: (make.images(), make(size * size, CHANNELS))


def _box_blur(x: Tensor) -> Tensor:
    rows = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
    return (rows[:-2] + rows[1:-1] + rows[2:]) / 3


def _sobel(x: Tensor) -> Tensor:
    a, b, c, d, _, f, g, h, i = _shifted(x, 3)
    across, down = (c + 2 * f + i) - (a + 2 * d + g), (g + 2 * h + i) - (a + 2 * b + c)
    return (across * across + down * down + 1e-6).sqrt()


def _laplacian(x: Tensor) -> Tensor:
    _, above, _, left, middle, right, _, below, _ = _shifted(F.pad(x, (1, 1, 1, 1)), 3)
    return 4 * middle - above - left - right - below


def _causal_filter(x: Tensor, w: Tensor) -> Tensor:
    """Four taps back in time, as in state-space models: x is (tokens, channels)."""
    padded = F.pad(x, (0, 0, 3, 0))
    return F.silu(sum((padded[k : k + x.shape[0]] * w[k] for k in range(1, 4)), padded[: x.shape[0]] * w[0]))


def _taps(make: Operands) -> tuple[Tensor, ...]:
    return (*make.matrices(1), make(4, make.columns))


KERNELS = (
    Kernel("depthwise_3", _depthwise, _weights(3)),
    Kernel("depthwise_5", _depthwise, _weights(5), ("float32",)),
    Kernel("box_blur", _box_blur, matrices(1)),
    Kernel("sobel", _sobel, images(), ("float32",)),
    Kernel("laplacian", _laplacian, images()),
    Kernel("causal_filter", _causal_filter, _taps),
    Kernel("local_maximum", lambda x: x * (F.max_pool2d(x, 3, 1, 1) == x), images()),
)
