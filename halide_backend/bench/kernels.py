"""What the benchmark computes: functions of tensors, each at a size that vectors divide and at one that they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

#: Device -> (rows, columns) of the operands: whole vectors, and odd numbers.
SIZES = {"cuda": ((8192, 2048), (4099, 2001)), "cpu": ((1024, 1024), (509, 1001))}

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Operands:
    """Makes random operands of `rows` and `columns`."""

    rows: int
    columns: int
    dtype: torch.dtype
    device: str

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, device=self.device, dtype=self.dtype)

    def indices(self, count: int, below: int) -> Tensor:
        return torch.randint(0, below, (count,), device=self.device)

    def matrices(self, count: int) -> tuple[Tensor, ...]:
        return tuple(self(self.rows, self.columns) for _ in range(count))

    def images(self) -> Tensor:
        """As many numbers as a matrix: 32 channels, square images whose side is odd if the matrix's is."""
        side = 56 if self.columns % 2 == 0 else 55
        return self(max(1, self.rows * self.columns // (32 * side * side)), 32, side, side)


@dataclass(frozen=True)
class Kernel:
    """`function` of what `operands` makes; `compared` says whether eager has the same result."""

    name: str
    function: Callable[..., Any]
    operands: Callable[[Operands], tuple[Tensor, ...]]
    compared: bool = True


@dataclass(frozen=True)
class Case:
    """A kernel at one size and dtype on one device."""

    kernel: Kernel
    make: Operands
    dtype: str

    @property
    def name(self) -> str:
        return f"{self.kernel.name}_{self.make.rows}x{self.make.columns}_{self.dtype}"

    def arguments(self) -> tuple[Tensor, ...]:
        """New operands."""
        return self.kernel.operands(self.make)


def cases(device: str) -> Iterator[Case]:
    """Every kernel at every size in every dtype."""
    for kernel in KERNELS:
        for rows, columns in SIZES[device]:
            for name, dtype in DTYPES.items():
                yield Case(kernel, Operands(rows, columns, dtype, device), name)


def _matrices(count: int) -> Callable[[Operands], tuple[Tensor, ...]]:
    return lambda make: make.matrices(count)


def _with_columns(count: int) -> Callable[[Operands], tuple[Tensor, ...]]:
    return lambda make: (*make.matrices(1), *(make(make.columns) for _ in range(count)))


def _labelled(make: Operands) -> tuple[Tensor, ...]:
    return (*make.matrices(1), make.indices(make.rows, make.columns))


def _images(make: Operands) -> tuple[Tensor, ...]:
    return (make.images(), make(32), make(32))


def _table(make: Operands) -> tuple[Tensor, ...]:
    return (make(30_000, make.columns), make.indices(make.rows, 30_000))


def _derivative(function: Callable[..., Tensor]) -> Callable[..., Any]:
    """The gradients of `function` in all its arguments, for a gradient of its result that comes last."""

    def backward(*arguments: Tensor) -> Any:
        *inputs, gradient = arguments
        return torch.func.vjp(function, *inputs)[1](gradient)

    return backward


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.layer_norm(x, w.shape, w, b)


def _rms_norm(x: Tensor, w: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def _swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def _rope(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    low, high = x[:, :half], x[:, half : 2 * half]
    angle = torch.arange(half, device=x.device, dtype=torch.float32) * 1e-2
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def _adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    m = m * 0.9 + g * 0.1
    v = v.abs() * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-6), m, v


def _quantise(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True) / 127
    return torch.clamp(torch.round(wide / scale), -128, 127).to(torch.int8), scale


def _dequantise(x: Tensor) -> Tensor:
    codes, scale = _quantise(x)
    return (codes.float() * scale).to(x.dtype)


def _embedding(w: Tensor, i: Tensor) -> Tensor:
    return F.embedding(i, w) * 2


def _residual_norm(x: Tensor, y: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    total = x + y
    return total, F.layer_norm(total, w.shape, w, b)


KERNELS = (
    Kernel("add_relu", lambda x, y: torch.relu((x + y) * y), _matrices(2)),
    Kernel("bias_relu", lambda x, b: torch.relu(x + b), _with_columns(1)),
    Kernel("gelu", F.gelu, _matrices(1)),
    Kernel("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), _matrices(1)),
    Kernel("gelu_backward", _derivative(F.gelu), _matrices(2)),
    Kernel("silu", F.silu, _matrices(1)),
    Kernel("swiglu", _swiglu, _matrices(2)),
    Kernel("swiglu_backward", _derivative(_swiglu), _matrices(3)),
    Kernel("dropout", lambda x: F.dropout(x, 0.1), _matrices(1), compared=False),
    Kernel("adam", _adam, _matrices(4)),
    Kernel("softmax", _softmax, _matrices(1)),
    Kernel("softmax_backward", _derivative(_softmax), _matrices(2)),
    Kernel("log_softmax", lambda x: torch.log_softmax(x, -1), _matrices(1)),
    Kernel("logsumexp", lambda x: torch.logsumexp(x, -1), _matrices(1)),
    Kernel("cross_entropy", lambda x, y: F.cross_entropy(x, y), _labelled),
    Kernel("nll_rows", lambda x, y: F.nll_loss(torch.log_softmax(x, -1), y, reduction="none"), _labelled),
    Kernel("layer_norm", _layer_norm, _with_columns(2)),
    Kernel("layer_norm_backward", _derivative(lambda x: F.layer_norm(x, x.shape[-1:])), _matrices(2)),
    Kernel("residual_norm", _residual_norm, lambda make: (*make.matrices(2), make(make.columns), make(make.columns))),
    Kernel("rms_norm", _rms_norm, _with_columns(1)),
    Kernel("rms_norm_backward", _derivative(lambda x: _rms_norm(x, torch.ones_like(x[0]))), _matrices(2)),
    Kernel("group_norm", lambda x, w, b: F.group_norm(x, 8, w, b), _images),
    Kernel("batch_norm", lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), _images),
    Kernel("row_sum", lambda x: x.sum(-1), _matrices(1)),
    Kernel("column_sum", lambda x: x.sum(0), _matrices(1)),
    Kernel("full_sum", lambda x: x.sum(), _matrices(1)),
    Kernel("mean_square", lambda x, y: F.mse_loss(x, y), _matrices(2)),
    Kernel("variance", lambda x: x.var(-1), _matrices(1)),
    Kernel("row_max", lambda x: x.amax(-1), _matrices(1)),
    Kernel("argmax", lambda x: x.float().argmax(-1), _matrices(1)),
    Kernel("cumsum", lambda x: x.cumsum(-1), _matrices(1)),
    Kernel("transpose_add", lambda x, y: x.t() + y, lambda make: (make.matrices(1)[0], make(make.columns, make.rows))),
    Kernel("permute", lambda x: x.permute(0, 2, 3, 1).contiguous(), lambda make: (make.images(),)),
    Kernel("concat", lambda x, y: torch.cat((x, y + 1), -1), _matrices(2)),
    Kernel("slice", lambda x: x[:, 1:-1] * 2, _matrices(1)),
    Kernel("pad", lambda x: F.pad(x, (1, 3, 2, 2)) * 2, _matrices(1)),
    Kernel("flip", lambda x: x.flip(-1) + x, _matrices(1)),
    Kernel("embedding", _embedding, _table),
    Kernel(
        "embedding_backward",
        lambda i, g: torch.zeros(30_000, g.shape[1], device=g.device).index_add(0, i, g.float()),
        lambda make: (make.indices(make.rows, 30_000), *make.matrices(1)),
    ),
    Kernel(
        "index_add",
        lambda x, i, s: x.float().index_add(0, i, s.float()),
        lambda make: (make(1000, make.columns), make.indices(make.rows, 1000), *make.matrices(1)),
    ),
    Kernel("quantise", _quantise, _matrices(1)),
    Kernel("dequantise", _dequantise, _matrices(1)),
    Kernel("rope", _rope, _matrices(1)),
    Kernel("max_pool", lambda x: F.max_pool2d(x, 2), lambda make: (make.images(),)),
    Kernel("average_pool", lambda x: F.avg_pool2d(x, 2), lambda make: (make.images(),)),
    Kernel("upsample", lambda x: F.interpolate(x, scale_factor=2), lambda make: (make.images(),)),
    Kernel("masked_softmax", lambda x, m: _softmax(x.masked_fill(m > 1, float("-inf"))), _matrices(2)),
)
