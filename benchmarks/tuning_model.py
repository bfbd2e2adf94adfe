"""Kernels of several kinds for `halide-backend tune`: rows, columns, a transpose, a gather, pointwise."""

from __future__ import annotations

import torch
from torch import Tensor


def rows(x: Tensor, w: Tensor) -> Tensor:
    return torch.softmax(x * w, -1)


def columns(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum(0)


def transposed(x: Tensor, y: Tensor) -> Tensor:
    return x.t() + y


def gathered(table: Tensor, index: Tensor) -> Tensor:
    return table[index] * 2 + 1


def pointwise(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.gelu(x) * y


def mean(x: Tensor, y: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x + y, x.shape[-1:])


def run() -> None:
    """Compile and call each of them once."""
    x, y = torch.randn(512, 768), torch.randn(512, 768)
    index = torch.randint(0, 512, (2000,))
    arguments = {
        rows: (x, torch.randn(768)),
        columns: (x, y),
        transposed: (x, torch.randn(768, 512)),
        gathered: (x, index),
        pointwise: (x, y),
        mean: (x, y),
    }
    for function, given in arguments.items():
        torch.compile(function, dynamic=False)(*given)


if __name__ == "__main__":
    run()
