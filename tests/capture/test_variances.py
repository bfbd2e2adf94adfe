"""Variances of dynamic rows: computed as those of known ones of typical length, and right for all lengths."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend.program.loop_program import Reduction


def normalised(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def deviation(x: Tensor) -> Tensor:
    return torch.var(x, -1)


def of_all(x: Tensor) -> Tensor:
    return torch.var(x[0])


def compiled(function: Callable[[Tensor], Tensor], *, dynamic: bool) -> Callable[[Tensor], Tensor]:
    torch._dynamo.reset()
    halide_backend.reset_stats()
    return torch.compile(function, backend="halide_backend", dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True], ids=["known", "dynamic"])
@pytest.mark.parametrize(
    ("function", "columns", "count"),
    [(normalised, 100, 2), (deviation, 1024, 2), (deviation, 1025, 3), (of_all, 20, 3)],
)
def test_short_rows_need_no_correction(
    function: Callable[[Tensor], Tensor], columns: int, count: int, dynamic: bool
) -> None:
    """A mean, deviations from it and, in rows of more than 1,024, what the rounding errors of the mean add to them."""
    compiled(function, dynamic=dynamic)(torch.randn(5, columns, generator=torch.Generator().manual_seed(0)))
    programs = [record.program for record in halide_backend.records() if record.program is not None]
    values = [value for program in programs for value in program.values]
    assert sum(isinstance(value.attribute, Reduction) for value in values) == count


@pytest.mark.parametrize("function", [normalised, deviation])
def test_rows_may_be_longer_than_typical(function: Callable[[Tensor], Tensor]) -> None:
    called = compiled(function, dynamic=True)
    for columns in (100, 3, 1000, 50_000, 400_000):
        x = torch.randn(3, columns, generator=torch.Generator().manual_seed(columns))
        x += torch.tensor([[0.0], [100.0], [-1000.0]])
        # A few units in the last place of a mean of 1,000.
        torch.testing.assert_close(called(x).double(), function(x.double()), rtol=1e-4, atol=5e-4)
    assert halide_backend.stats()["delegation_reasons"] == {}


def gradient(x: Tensor, y: Tensor) -> Tensor:
    """Of a layer norm without weights, as PyTorch decomposes it."""
    n = x.shape[-1]
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    scale = (variance + 1e-5).rsqrt()
    along = (x - mean) * scale
    return scale / n * (y * n - y.sum(-1, keepdim=True) - along * (y * along).sum(-1, keepdim=True))


@pytest.mark.parametrize("dynamic", [False, True], ids=["known", "dynamic"])
def test_the_length_of_a_row_is_no_work(dynamic: bool) -> None:
    """A size as a float counted as an operation: normalised rows were worth storing then."""
    torch._dynamo.reset()
    halide_backend.reset_stats()
    x, y = torch.randn(2, 64, 100, generator=torch.Generator().manual_seed(1))
    called = torch.compile(gradient, backend="halide_backend", dynamic=dynamic)
    torch.testing.assert_close(called(x, y).double(), gradient(x.double(), y.double()), rtol=1e-4, atol=1e-4)
    (record,) = halide_backend.records()
    assert "Role.REDUCTION" in record.text
    # What a row's sums give is stored, one value each; x1 goes along a row.
    stored = [line for line in record.text.splitlines() if "Role.SHARED" in line]
    assert bool(stored) == dynamic and not any("'x1'" in line for line in stored)
