"""Index expressions: what is proved about them holds, and what does not hold is not proved."""

from __future__ import annotations

import itertools

import pytest
import sympy
from torch.utils._sympy.functions import ModularIndexing

from halide_backend.capture.closed_index import closed
from halide_backend.capture.indexing import affine, value_range, with_short_remainders
from halide_backend.capture.sizes import quotient
from halide_backend.program.index_syntax import print_index

X, Y = (sympy.Symbol(name, integer=True, nonnegative=True) for name in ("x0", "x1"))
EXTENTS = {X: 10, Y: 37}


@pytest.mark.parametrize("index", [X, 3 * X + Y, X - Y + 5, 37 * X + Y, X * 7, X - 4])
def test_value_range_is_the_range_of_all_points(index: sympy.Expr) -> None:
    values = [int(index.subs({X: a, Y: b})) for a, b in itertools.product(range(10), range(37))]
    assert value_range(index, EXTENTS) == (min(values), max(values))


def test_affine_takes_an_index_apart() -> None:
    assert affine(5 * X - 2 * Y + 7, [X, Y]) == ({X: 5, Y: -2}, 7)
    assert affine(X * Y, [X, Y]) is None


def test_a_quotient_is_an_integer_for_all_sizes_or_none() -> None:
    size = sympy.Symbol("s0", integer=True, positive=True)
    assert (quotient(12, 4), quotient(12, 5)) == (3, None)
    assert (quotient(6 * size + 12, 6), quotient(size + 7, 6)) == (size + 2, None)
    assert quotient(sympy.Integer(12), size) is None
    assert (quotient(size * X + X, size + 1), quotient(size * X, size + 1)) == (X, None)


@pytest.mark.parametrize(
    ("whole", "modulus", "shorter"),
    [
        (X + 16 * Y, 48, X + 16 * ModularIndexing(Y, 1, 3)),
        (X + 16 * Y + 32, 48, X + 16 * ModularIndexing(Y + 2, 1, 3)),
        (3 * X + 30 * Y, 90, 3 * X + 30 * ModularIndexing(Y, 1, 3)),
        # The short part may reach the next multiple, or the rest has another unit.
        (X + 8 * Y, 48, None),
        (X + 7 + 16 * Y, 48, None),
        (X + 15 * Y, 48, None),
        (Y + 16 * X, 48, None),
    ],
)
def test_a_short_part_of_a_remainder_is_added(whole: sympy.Expr, modulus: int, shorter: sympy.Expr | None) -> None:
    index = ModularIndexing(whole, 1, modulus)
    found = with_short_remainders(index, EXTENTS)
    assert found == (index if shorter is None else shorter)
    for x, y in itertools.product(range(10), range(37)):
        assert int(found.subs({X: x, Y: y})) == int(whole.subs({X: x, Y: y})) % modulus


def test_sympys_own_minimum_is_one_of_a_program() -> None:
    """Average pooling has it in torch 2.11; without it the kernel was left to Inductor's own backend."""
    index = sympy.Min(31, 2 * X + 2) - sympy.Max(0, X - 1)
    text = print_index(closed(index))
    for x in (0, 1, 20):
        assert eval(text, {"x0": x}) == min(31, 2 * x + 2) - max(0, x - 1)
