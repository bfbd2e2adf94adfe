"""Steps of optimizers as functions of parameters, gradients and state."""

from __future__ import annotations

import torch
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import Operands, matrices

#: Parameters of `adam_of_many`.
_MANY = 12


def _adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    m = m * 0.9 + g * 0.1
    v = v.abs() * 0.999 + g * g * 0.001
    return p - 1e-3 * m / (v.sqrt() + 1e-6), m, v


def _adam_w(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    p, m, v = _adam(p * (1 - 1e-5), g, m, v)
    return p, m, v


def _momentum(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    m = 0.9 * m + g + 1e-4 * p
    return p - 0.1 * m, m


def _lion(p: Tensor, g: Tensor, m: Tensor) -> tuple[Tensor, ...]:
    return p - 1e-4 * (torch.sign(0.9 * m + 0.1 * g) + 0.01 * p), 0.99 * m + 0.01 * g


def _clipped(*gradients: Tensor) -> list[Tensor]:
    norm = torch.stack([torch.linalg.vector_norm(g.float()) for g in gradients]).norm()
    return [g * torch.clamp(1 / (norm + 1e-6), max=1).to(g.dtype) for g in gradients]


def _adam_of_many(*state: Tensor) -> list[Tensor]:
    return [result for k in range(0, len(state), 4) for result in _adam(*state[k : k + 4])]


def _many(make: Operands) -> tuple[Tensor, ...]:
    shapes = ((make.columns, 3), (make.columns,)) * (_MANY // 2)
    return tuple(make(*shape) for shape in shapes for _ in range(4))


KERNELS = (
    Kernel("adam", _adam, matrices(4)),
    Kernel("adam_w", _adam_w, matrices(4), ("float32",)),
    Kernel("momentum", _momentum, matrices(3)),
    Kernel("lion", _lion, matrices(3)),
    Kernel("moving_average", lambda p, a: a * 0.999 + p * 0.001, matrices(2), ("float32",)),
    Kernel("clipped_gradients", _clipped, matrices(2)),
    Kernel("adam_of_many", _adam_of_many, _many, ("float32",)),
)
