"""Integers that a compiled function is called with are data of 64 bits and either sign, computed as in Python."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import halide_backend

VALUES = (4, -5, -1, 7, 3_000_000_001, -3_000_000_007, (1 << 61) + 12345)

FUNCTIONS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": lambda x, k: x + k,
    "larger": lambda x, k: x + max(k, 0),
    "smaller": lambda x, k: x * min(k, 3),
    "magnitude": lambda x, k: x + abs(k),
    "quotient": lambda x, k: x + k // 3,
    "remainder": lambda x, k: x + k % 7,
    "negative divisor": lambda x, k: x + k // -3,
    "remainder of a negative divisor": lambda x, k: x + k % -5,
    "divisor": lambda x, k: x + 100 // k,
    "modulus": lambda x, k: x + 100 % k,
    "true quotient": lambda x, k: x * (k / 3),
    "float": lambda x, k: x * float(k),
    "shifts": lambda x, k: x + (k << 1) - (k >> 1),
    "comparison": lambda x, k: x + (k > 0),
    "positions": lambda x, k: torch.arange(x.shape[0]) * 3 + k + x,
    "magnitude of positions": lambda x, k: (torch.arange(x.shape[0]) + k).abs() + x,
    "fill": lambda x, k: torch.full_like(x, k, dtype=torch.int64) + x,
    "condition": lambda x, k: torch.where(x > k, x, k),
}


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_integers_are_data(function: Callable[[Tensor, int], Tensor], dtype: torch.dtype) -> None:
    halide_backend.reset_stats()
    compiled = torch.compile(function, backend="halide_backend", dynamic=True, fullgraph=True)
    x = torch.arange(-6, 11).to(dtype)
    for k in VALUES:
        assert torch.equal(compiled(x, k), function(x, k)), k
    assert halide_backend.stats()["native_kernels"] >= 1
    assert halide_backend.stats()["delegation_reasons"] == {}


@pytest.mark.parametrize(
    "function",
    [lambda x, k: x[k] + 1, lambda x, k: x[k:] * 2, lambda x, k: x[: k + 1] * 2, lambda x, k: x.roll(k, 0) + k % 4],
    ids=["element", "rest", "beginning", "roll"],
)
def test_integers_are_places(function: Callable[[Tensor, int], Tensor]) -> None:
    compiled = torch.compile(function, backend="halide_backend", dynamic=True)
    x = torch.randn(17, 3)
    for k in (4, -5, -3, 7, 2):
        assert torch.equal(compiled(x, k), function(x, k)), k


POSITIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "squares": lambda x: torch.arange(100_000) * torch.arange(100_000) + x,
    "squares that are compared": lambda x: (torch.arange(100_000) * torch.arange(100_000) < 50) & (x == 0),
    "products": lambda x: torch.arange(50_000, 50_009)[:, None] * torch.arange(100_000) + x,
    "remainders of negative numbers": lambda x: torch.fmod(torch.arange(100_000) - 500, 7) + x,
    "remainders of quotients": lambda x: torch.fmod((torch.arange(100_000) - 500) // 3, 5) + x,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", POSITIONS.values(), ids=POSITIONS)
def test_numbers_computed_from_positions(function: Callable[[Tensor], Tensor], dynamic: bool) -> None:
    """They are int64, where an index is int32; and the sign of a remainder is that of fmod, not that of an index."""
    halide_backend.reset_stats()
    x = torch.zeros(100_000, dtype=torch.int64)
    compiled = torch.compile(function, backend="halide_backend", dynamic=dynamic, fullgraph=True)
    assert torch.equal(compiled(x), function(x))
    assert halide_backend.stats()["native_kernels"] == 1


def test_squares_of_positions_along_a_dynamic_size() -> None:
    def function(x: Tensor) -> Tensor:
        positions = torch.arange(x.shape[0])
        return (positions * positions - 2 * positions < 5) & (x == 0)

    compiled = torch.compile(function, backend="halide_backend", dynamic=True, fullgraph=True)
    for length in (100_000, 70_000):
        x = torch.zeros(length, dtype=torch.int64)
        assert torch.equal(compiled(x), function(x)), length
