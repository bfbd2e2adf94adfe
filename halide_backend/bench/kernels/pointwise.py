"""Elements by themselves, with broadcast rows and columns among the operands."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.kernels.derivative import derivative
from halide_backend.bench.operands import Operands, in_rows_of, matrices, with_columns

_HALF = ("float32", "bfloat16", "float16")


def _swiglu(x: Tensor, y: Tensor) -> Tensor:
    return F.silu(x) * y


def _add_relu(x: Tensor, y: Tensor) -> Tensor:
    return torch.relu((x + y) * y)


def _polynomial(x: Tensor) -> Tensor:
    return ((((0.1 * x + 0.2) * x - 0.3) * x + 0.4) * x - 0.5) * x + 0.6


def _halves(x: Tensor) -> Tensor:
    half = x.shape[1] // 2
    return F.gelu(x[:, :half]) * x[:, half : 2 * half]


def _outer(make: Operands) -> tuple[Tensor, ...]:
    return (make(make.rows, 1), make(make.columns))


def _vectors(make: Operands) -> tuple[Tensor, ...]:
    return (make(make.elements), make(make.elements))


KERNELS = (
    Kernel("add_relu", _add_relu, matrices(2), _HALF),
    Kernel("add_relu_vector", _add_relu, _vectors),
    Kernel("bias_relu", lambda x, b: torch.relu(x + b), with_columns(1), _HALF),
    Kernel("bias_relu_37", lambda x, b: torch.relu(x + b), with_columns(1, 37)),
    Kernel("outer_sum", lambda x, y: x + y, _outer),
    Kernel("outer_gate", lambda x, y: torch.sigmoid(x) * torch.tanh(y), _outer),
    Kernel("gelu", F.gelu, matrices(1), _HALF),
    Kernel("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), matrices(1)),
    Kernel("gelu_backward", derivative(F.gelu), matrices(2)),
    Kernel("silu", F.silu, matrices(1)),
    Kernel("silu_backward", derivative(F.silu), matrices(2)),
    Kernel("swiglu", _swiglu, matrices(2)),
    Kernel("swiglu_backward", derivative(_swiglu), matrices(3)),
    Kernel("geglu_halves", _halves, matrices(1)),
    Kernel("sigmoid", torch.sigmoid, matrices(1)),
    Kernel("tanh", torch.tanh, matrices(1)),
    Kernel("exp", lambda x: torch.exp(-x.abs()), matrices(1)),
    Kernel("log1p", lambda x: torch.log1p(x.abs()), matrices(1)),
    Kernel("mish", F.mish, matrices(1)),
    Kernel("softplus", F.softplus, matrices(1)),
    Kernel("hardswish", F.hardswish, matrices(1)),
    Kernel("elu", F.elu, matrices(1)),
    Kernel("sin_cos", lambda x: (torch.sin(x), torch.cos(x)), matrices(1)),
    Kernel("rsqrt", lambda x: torch.rsqrt(x * x + 1), matrices(1)),
    Kernel("power", lambda x, y: torch.pow(x.abs() + 0.5, y), matrices(2)),
    Kernel("polynomial", _polynomial, matrices(1)),
    Kernel("lerp", lambda x, y, w: torch.lerp(x, y, torch.sigmoid(w)), matrices(3)),
    Kernel("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=0.5), matrices(3)),
    Kernel("dropout", lambda x: F.dropout(x, 0.1), matrices(1), compared=False),
    Kernel("scale_short_rows", lambda x: x * 2 + 1, in_rows_of(9)),
)
