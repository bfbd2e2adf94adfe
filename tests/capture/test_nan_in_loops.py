"""Loops whose steps would change nothing if floats were real numbers: Halide must not leave them out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Check = Callable[..., dict[str, object]]
NAN, INF = float("nan"), float("inf")

PREDICATES: dict[str, Callable[[Tensor], Tensor]] = {
    "x != x": lambda x: x != x,
    "not x == x": lambda x: ~(x == x),
    "not x <= x": lambda x: ~(x <= x),
    "isnan": torch.isnan,
    "isinf": torch.isinf,
    "neither x < x + 1 nor x >= x + 1": lambda x: ~((x < x + 1) | (x >= x + 1)),
    "not relu(x) >= 0": lambda x: ~(x.relu() >= 0),
    "not min(x, x + 1) <= x": lambda x: ~(torch.minimum(x, x + 1) <= x),
}


def _with_specials(rows: int, columns: int) -> Tensor:
    values = torch.randn(rows, columns)
    values[::5, 2] = NAN
    values[::7, 1] = INF
    return values


@pytest.mark.sampled(3)
@pytest.mark.parametrize("columns", [3, 8, 33, 800])
@pytest.mark.parametrize("predicate", PREDICATES.values(), ids=PREDICATES)
def test_any_and_all(check: Check, predicate: Callable[[Tensor], Tensor], columns: int) -> None:
    x = _with_specials(63, columns)
    check(lambda v: (predicate(v).any(1), (~predicate(v)).all(1), predicate(v).any(), predicate(v).sum(1)), x)
    check(lambda v: (predicate(v).any(0), (~predicate(v)).all(0)), x.t().contiguous())


@pytest.mark.parametrize("columns", [3, 8, 33])
def test_what_would_be_zero(check: Check, columns: int) -> None:
    x = _with_specials(63, columns)
    check(lambda v: ((v - v).sum(1), (v - v).amax(1), (v / v).prod(1)), x)


def test_what_would_be_zero_is_added_to_memory(check: Check) -> None:
    index, x = torch.randint(0, 5, (63,)), _with_specials(63, 8)
    check(lambda y, i, v: y.index_add(0, i, v - v), torch.randn(5, 8), index, x)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_least_numbers(check: Check, dtype: torch.dtype) -> None:
    """Halide solved these for the largest int32, or overflowed."""
    x, least = torch.randn(7, 5), torch.iinfo(dtype).min
    x[3] = -1
    check(lambda v: torch.where(v > 0, -torch.arange(5, dtype=dtype), least).amax(-1), x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_nan_of_a_least_number_has_no_sign(check: Check, dtype: torch.dtype) -> None:
    """Seed 3479: it was that of a key with all bits set."""
    x = _with_specials(63, 8).to(dtype)
    check(lambda v: (v.amin(1).signbit(), v.amax(1).signbit(), v.amin(0).signbit(), v.amin().signbit()), x)
