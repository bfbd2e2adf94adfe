"""Index expressions."""

from __future__ import annotations

import pytest
import sympy

from halide_backend.program.index import AxisSymbol, FloorDiv, Mod, SizeSymbol, expanded

X, Y, N = AxisSymbol("x0"), AxisSymbol("x1"), SizeSymbol("n", nonnegative=True)


@pytest.mark.parametrize(
    "expression",
    [
        sympy.Integer(3),
        X,
        2 * X + 7 * Y - 1,
        N * X + Y,
        N * (X + 1),
        (X + 1) * (Y - 1),
        X * (Y + 1) - X * Y,
        (X + 1) ** 2 - X**2,
        X * (X + Y) / 2,
        FloorDiv(N * (X + 1), 4),
        8 * Mod(FloorDiv((X + 1) * N, 3) * (Y + 2), 5) + X,
        sympy.Mul(2, X + Y, evaluate=False),
        sympy.Mul(N, Mod(sympy.Mul(3, X + Y, evaluate=False), 5)),
    ],
    ids=str,
)
def test_sums_are_multiplied_out_as_sympy_does(expression: sympy.Expr) -> None:
    assert expanded(expression) == sympy.expand(expression)
