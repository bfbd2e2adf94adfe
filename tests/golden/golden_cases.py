"""The kernels that have goldens: one table of functions and small operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.build.target import Target

#: Machines by name; nothing is asked of the one that the tests run on.
TARGETS = {
    "cpu": Target.named("avx512"),
    "cpu-avx2": Target.named("avx2"),
    "cuda": Target.cuda(9, 0),
}

_BOTH = ("cpu", "cuda")


@dataclass(frozen=True)
class Case:
    """A function of what `arguments` makes; with `dynamic` all sizes are arguments of its kernels.

    Functions and sizes are such that every supported torch lowers them to the same loops: variances of fewer than 1,024
    elements, F.embedding and lerp are not.
    """

    name: str
    function: Callable[..., Any]
    arguments: Callable[[], tuple[Any, ...]]
    targets: tuple[str, ...] = _BOTH
    dynamic: bool = False


def floats(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.ones(shape, dtype=dtype) for shape in shapes)


def halves(*shapes: tuple[int, ...]) -> Callable[[], tuple[Tensor, ...]]:
    return floats(*shapes, dtype=torch.bfloat16)


def indices(count: int) -> Tensor:
    return torch.zeros(count, dtype=torch.int64)


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def normalised(x: Tensor) -> Tensor:
    """A layer norm in operations that all versions of Inductor lower alike."""
    centred = x - x.mean(-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)


def softmax_backward(y: Tensor, g: Tensor) -> Tensor:
    return y * (g - (y * g).sum(-1, keepdim=True))


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


def quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.clamp(torch.round(x / scale), -128, 127).to(torch.int8), scale


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> None:
    m.mul_(0.9).add_(g, alpha=0.1)
    v.mul_(0.999).add_(g * g, alpha=0.001)
    p.sub_(m / (v.sqrt() + 1e-8), alpha=0.001)


def update(x: Tensor, y: Tensor) -> Tensor:
    old = x * 2
    x.add_(y)
    return old


def scores(q: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    s = q + bias[:, None]
    return torch.softmax(s, -1), s.amax(-1)


def rotary_halves(x: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return x[..., :32] * c - x[..., 32:] * s, x[..., 32:] * c + x[..., :32] * s


def masked_softmax(x: Tensor) -> Tensor:
    return torch.softmax(torch.tril(x).masked_fill(x > 3, float("-inf")), -1)


CASES = (
    # pointwise
    Case("add_relu", lambda x, y: torch.relu((x + y) * y), floats((64, 128), (64, 128)), (*_BOTH, "cpu-avx2")),
    Case("add_relu_odd", lambda x, y: torch.relu((x + y) * y), floats((1001,), (1001,))),
    Case("bias_odd", lambda x, b: x + b, floats((4001, 1101), (1101,))),
    Case("bias_gelu_bfloat16", lambda x, b: F.gelu(x + b), halves((64, 200), (200,))),
    Case("several_outputs", lambda x, y: (x * 2 + y, x > y, (x - y).bfloat16()), floats((40, 130), (40, 130))),
    Case(
        "mixed_dtypes",
        lambda x, n, c: (torch.where(c, x.double(), n), n // 3 + x.int(), c & (n > 2)),
        lambda: (torch.ones(33, 70), torch.ones(33, 70, dtype=torch.int64), torch.ones(70, dtype=torch.bool)),
    ),
    Case("bytes", lambda x: (x + 3) >> 1, lambda: (torch.zeros(1001, dtype=torch.uint8),)),
    Case(
        "integer_quotients",
        lambda a, b: (a // b, a % b),
        lambda: (torch.ones(33, 70, dtype=torch.int64), torch.ones(70, dtype=torch.int64)),
    ),
    Case("positions", lambda x: x + torch.arange(64) * 3_000_000_000, floats((50, 64))),
    # rows
    Case("softmax", lambda x: torch.softmax(x, -1), floats((64, 1000)), (*_BOTH, "cpu-avx2")),
    Case("softmax_of_quotients", lambda x: torch.softmax(x / 0.7, -1), floats((64, 1000)), ("cpu",)),
    Case("sums_of_channels", lambda x: x.amax((1, 2), keepdim=True) - x.sum(2), floats((40, 4, 900)), ("cpu",)),
    Case("extremes_of_all", lambda x: (x.amin(), x.amax()), floats((300, 301)), ("cpu",)),
    Case("column_statistics", lambda x: torch.var_mean(x, 0), floats((4096, 256)), ("cpu",)),
    Case("column_sum_odd", lambda x: x.sum(0), halves((300, 37)), ("cpu",)),
    Case("softmax_long", lambda x: torch.softmax(x, -1), floats((4, 8192))),
    Case("softmax_longest", lambda x: torch.softmax(x, -1), floats((2, 100_003))),
    Case("softmax_short", lambda x: torch.softmax(x, -1), halves((64, 3, 32))),
    Case("softmax_backward", softmax_backward, floats((64, 256), (64, 256))),
    Case("log_softmax", lambda x: torch.log_softmax(x, -1), floats((64, 100))),
    Case("log_softmax_short", lambda x: torch.log_softmax(x, -1), halves((1001, 10)), ("cpu",)),
    Case("layer_norm", lambda x, w, b: F.layer_norm(x, w.shape, w, b), floats((16, 2048), (2048,), (2048,))),
    Case("rms_norm_bfloat16", rms_norm, halves((64, 512), (512,))),
    Case("row_sum", lambda x: x.sum(-1), floats((300, 1003)), (*_BOTH, "cpu-avx2")),
    Case("row_sum_long", lambda x: x.sum(-1), floats((8, 65_536))),
    # columns
    Case("column_sum", lambda x: x.sum(0), floats((320, 128))),
    Case("column_variance", lambda x: x.var(0), floats((1200, 77))),
    Case("column_sums", lambda x: (x.sum(0), (x * x).sum(0)), floats((1200, 77)), ("cuda",)),
    Case("column_sum_long", lambda x: x.sum(0), floats((70_000, 24)), ("cpu",)),  # a GPU splits it
    Case("sums_both_ways", lambda x: (x.sum(0), x.sum(1), x * 2), floats((40, 96))),
    # everything
    Case("full_sum", lambda x: x.sum(), floats((300, 128))),
    Case("mean_square", lambda x, y: F.mse_loss(x, y), floats((40, 130), (40, 130))),
    # transposes
    Case("transpose_add", lambda x, y: x.t() + y, floats((64, 96), (96, 64)), (*_BOTH, "cpu-avx2")),
    Case("transpose_odd_bfloat16", lambda x, y: x.t() + y, halves((259, 201), (201, 259))),
    Case("transpose_large_bfloat16", lambda x, y: x.t() + y, halves((2048, 1536), (1536, 2048))),
    Case("transpose_two_outputs", lambda x, y: (x.mT + y, x.mT * y), floats((7, 64, 100), (7, 100, 64))),
    Case("transposed_norm", lambda x: normalised(x.mT), floats((5, 32, 96)), ("cpu", "cpu-avx2")),
    Case("transposed_copy", lambda x: x.t().contiguous() * 3, floats((128, 260))),
    Case("channels_last", lambda x: x.permute(0, 2, 3, 1).contiguous(), floats((2, 32, 20, 20))),
    # scans and searches; on a CPU searches and scans of pairs are aten's
    Case("cumsum", lambda x: x.cumsum(-1), floats((64, 1000))),
    Case("cumsum_columns", lambda x: x.cumsum(1), floats((4, 100, 64))),
    Case("cummax", lambda x: x.cummax(-1), floats((50, 64)), ("cuda",)),
    Case("logcumsumexp", lambda x: x.logcumsumexp(-1), floats((4, 5000))),
    Case("bucketize", lambda x, b: torch.bucketize(x, b), floats((64, 33), (100,)), ("cuda",)),
    # scatters
    Case("index_add", lambda x, s, i: x.index_add(0, i, s), lambda: (*floats((100, 64), (300, 64))(), indices(300))),
    Case(
        "embedding_backward",
        lambda i, g: torch.zeros(500, 64).index_put((i,), g, accumulate=True),
        lambda: (indices(300), *floats((300, 64))()),
    ),
    Case(
        "scatter",
        lambda x, s, i: x.scatter(1, i, s),
        lambda: (*floats((30, 70), (30, 10))(), torch.zeros(30, 10, dtype=torch.int64)),
    ),
    # gathers and their checks
    Case("embedding", lambda w, i: w[i] * 2, lambda: (*floats((500, 64))(), indices(300).view(3, 100))),
    Case("gather_checked", lambda x, i: x[i] + 1, lambda: (*floats((50, 33))(), indices(40))),
    Case(
        "gathered_rows",
        lambda x, i, k, j: torch.tanh(x[:, i][:, :, j]) + torch.tanh(x[:, k][:, :, j]),
        lambda: (*floats((3, 8, 40))(), indices(30), indices(30), indices(50)),
        ("cpu",),
    ),
    # masks, padding, concatenation
    Case("masked_softmax", masked_softmax, floats((3, 64, 64))),
    Case("concatenate", lambda x, y: torch.cat((x.relu(), y * 2), 1), floats((16, 20), (16, 33))),
    Case("pad", lambda x: F.pad(x, (2, 3, 1, 1)) + 1, floats((10, 37))),
    Case("flip", lambda x: x.flip(-1) + x, floats((64, 130))),
    Case("flip_bfloat16", lambda x: x.flip(-1) + x, halves((16, 64))),
    Case("pad_bfloat16", lambda x: F.pad(x, (8, 8, 2, 2)) * 2, halves((64, 128))),
    Case("repeat_interleave", lambda x: x.repeat_interleave(3, -1) * 2, floats((20, 35)), ("cpu",)),
    Case("roll", lambda x: x.roll((1, 5), (0, 1)) + x, floats((20, 40))),
    # positions and windows
    Case("argmax", lambda x: x.argmax(-1), floats((64, 1000))),
    Case("column_argmax", lambda x: x.argmax(0), floats((320, 128)), ("cuda",)),
    Case("column_argmin", lambda x: x.argmin(0), floats((64, 100))),
    Case("max_pool", lambda x: F.max_pool2d(x, 2), floats((2, 8, 30, 34))),
    Case("max_pool_bfloat16", lambda x: F.max_pool2d(x, 2), halves((1, 2, 56, 56))),
    Case("average_pool", lambda x: F.avg_pool2d(x, 3, stride=2, padding=1), floats((2, 8, 30, 34))),
    Case("upsample", lambda x: F.interpolate(x, scale_factor=2), floats((2, 8, 15, 16))),
    # sizes as arguments
    Case("pointwise_dynamic", lambda x, y: torch.relu((x + y) * y), floats((64, 100), (64, 100)), dynamic=True),
    Case("softmax_dynamic", lambda x: torch.softmax(x, -1), floats((64, 100)), dynamic=True),
    Case("column_sum_dynamic", lambda x: x.sum(0), floats((64, 100)), dynamic=True),
    Case(
        "channels_norm_dynamic",
        lambda x: normalised(x.permute(0, 2, 3, 1)).contiguous(),
        floats((2, 40, 18, 20)),
        ("cpu",),
        dynamic=True,
    ),
    Case("transpose_dynamic", lambda x, y: x.t() + y, floats((64, 96), (96, 64)), dynamic=True),
    Case(
        "reshape_dynamic",
        lambda x, y: ((x > y).reshape(x.shape[1], x.shape[0]), x.t().reshape(x.shape)),
        floats((64, 96), (64, 96)),
        dynamic=True,
    ),
    Case("scores_dynamic", scores, floats((4, 3, 20, 21), (4, 20, 21)), dynamic=True),
    # updates of operands
    Case("adam", adam, floats((1000,), (1000,), (1000,), (1000,))),
    Case("update_after_read", update, floats((33, 70), (33, 70))),
    Case("update_of_a_neighbour", lambda x: x[1:].copy_(x[:-1] * 2), floats((1000,)), ("cpu",)),
    # the rest of a model
    Case("rotary", rotary, floats((4, 64, 32), (64, 32), (64, 32))),
    Case("rotary_halves", rotary_halves, halves((4, 128, 8, 64), (128, 1, 32), (128, 1, 32))),
    Case(
        "batch_norm",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
        floats((8, 16, 12, 12), (16,), (16,)),
    ),
    Case("dropout", lambda x: F.dropout(x, 0.1), floats((64, 130))),
    Case("quantise_int8", quantise, floats((64, 256))),
    Case("float8", lambda x: x.to(torch.float8_e5m2).float() * 2, floats((64, 128)), ("cpu",)),
)
