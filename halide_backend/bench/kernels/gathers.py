"""Elements at places that other elements name: gathers, scatters, embeddings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import Operands

#: Rows of a table of embeddings.
_WORDS = 30_000


def _table(make: Operands) -> tuple[Tensor, ...]:
    return (make(_WORDS, make.columns), make.indices(make.rows, _WORDS))


def _narrow_table(make: Operands) -> tuple[Tensor, ...]:
    return (make(_WORDS, 37), make.indices(max(1, make.elements // 37), _WORDS))


def _positions(make: Operands) -> tuple[Tensor, ...]:
    return (make(_WORDS, make.columns), make(512, make.columns), make.indices(make.rows, _WORDS))


def _embedding_backward(i: Tensor, g: Tensor) -> Tensor:
    return torch.zeros(_WORDS, g.shape[1], device=g.device).index_add(0, i, g.float())


def _few(make: Operands) -> tuple[Tensor, ...]:
    return (make(1000, make.columns), make.indices(make.rows, 1000), *make.matrices(1))


def _along(make: Operands) -> tuple[Tensor, ...]:
    return (*make.matrices(1), make.indices(make.elements, make.columns).view(make.rows, make.columns))


def _places(make: Operands) -> tuple[Tensor, ...]:
    count = max(1, make.rows // 10)
    return (*make.matrices(1), torch.randperm(make.rows, device=make.device)[:count])


KERNELS = (
    Kernel("embedding", lambda w, i: F.embedding(i, w) * 2, _table, gathers=True),
    Kernel("embedding_37", lambda w, i: F.embedding(i, w) * 2, _narrow_table, gathers=True),
    Kernel("embedding_positions", lambda w, p, i: F.embedding(i, w) + p[i % 512], _positions, gathers=True),
    Kernel(
        "embedding_backward", _embedding_backward, lambda make: (make.indices(make.rows, _WORDS), *make.matrices(1))
    ),
    Kernel("index_add", lambda x, i, s: x.float().index_add(0, i, s.float()), _few),
    Kernel("gather_columns", lambda x, i: torch.gather(x, -1, i), _along),
    Kernel("scatter_columns", lambda x, i: torch.zeros_like(x).scatter(-1, i, x), _along, compared=False),
    Kernel(
        "select_columns",
        lambda x, i: x[:, i % x.shape[1]],
        lambda make: (*make.matrices(1), make.indices(make.columns // 2, make.columns)),
    ),
    Kernel("index_fill", lambda x, i: x.index_fill(0, i, 3.0), _places),
    Kernel(
        "one_hot",
        lambda i: F.one_hot(i, 100).float(),
        lambda make: (make.indices(max(1, make.elements // 100), 100),),
        ("float32",),
    ),
    Kernel(
        "bucketize",
        lambda x: torch.bucketize(x, torch.linspace(-2, 2, 33, device=x.device)),
        lambda make: make.of(torch.float32).matrices(1),
        ("float32",),
    ),
)
