"""Ranges of index expressions, against the values at every point; and what int32 may not hold."""

from __future__ import annotations

import itertools
import math
import operator
import random
from typing import Any

import pytest
import sympy

from halide_backend.program.index import AxisSymbol, FloorDiv, Max, Min, Mod, Select, SizeSymbol
from halide_backend.program.index_range import _of, fits_int32, overflows
from halide_backend.program.loop_program import Axis, LoopProgram, Nest, Store

X, Y, N = AxisSymbol("x0"), AxisSymbol("x1"), SizeSymbol("n0", nonnegative=True)
EXTENTS = {X: 7, Y: 5}

RELATIONS = {sympy.StrictLessThan: operator.lt, sympy.StrictGreaterThan: operator.gt}
FUNCTIONS: dict[Any, Any] = {
    sympy.Abs: abs,
    FloorDiv: operator.floordiv,
    Mod: operator.mod,
    Min: min,
    Max: max,
    Select: lambda condition, then, otherwise: then if condition else otherwise,
    **RELATIONS,
}


def value(expression: Any, point: dict[sympy.Symbol, int]) -> Any:
    """What the expression is at a point."""
    if expression in point:
        return point[expression]
    if expression.is_Integer or expression in (sympy.true, sympy.false):
        return int(expression) if expression.is_Integer else bool(expression)
    parts = [value(argument, point) for argument in expression.args]
    if expression.is_Add or expression.is_Mul:
        return sum(parts) if expression.is_Add else math.prod(parts)
    return parts[0] ** parts[1] if expression.is_Pow else FUNCTIONS[expression.func](*parts)


def expression(numbers: random.Random, depth: int) -> Any:
    """A random one."""
    if depth == 0:
        return numbers.choice([X, Y, sympy.Integer(numbers.randint(-9, 9))])
    a, b = expression(numbers, depth - 1), expression(numbers, depth - 1)
    part = sympy.Integer(numbers.randint(1, 5))
    made = [a + b, a - b, a * b, a**2, FloorDiv(a, part), Mod(a, part), Min(a, b), Max(a, b), sympy.Abs(a)]
    return numbers.choice([*made, Select(sympy.Lt(a, b), a, b)])


def test_ranges_hold_at_every_point() -> None:
    numbers = random.Random(1)
    for _ in range(500):
        index = expression(numbers, 3)
        found = _of(index, EXTENTS, math.inf)
        assert found is not None
        values = [value(index, dict(zip((X, Y), at))) for at in itertools.product(range(7), range(5))]
        assert found[0] <= min(values) <= max(values) <= found[1], index


def program(rows: Any, columns: Any) -> LoopProgram:
    axes = tuple(Axis(name, extent, 100) for name, extent in (("x0", rows), ("x1", columns)))
    return LoopProgram((), (), (), (), (Store("out_ptr0", X, 0, Nest(axes)),), (), axes)


FITS = [
    (X * Y, 40_000, 50_000, True),
    (X * Y, 50_000, 50_000, False),
    (X**2, 46_341, 1, True),
    (X**2, 46_342, 1, False),
    (3_000_000 * X - 1, 700, 1, True),
    (3_000_000 * X - 1, 800, 1, False),
    # It is small in the end.
    (FloorDiv(3_000_000 * X, 1000), 800, 1, False),
    (2_000 * (X - Y), 1_000_000, 1_000_000, True),
    (2_000 * X - 2_000 * Y + 200_000_000, 1_000_000, 1_000_000, False),
    (X - Y, N, N, True),
    (X + Y, N, N, False),
    (2 * X, FloorDiv(N + 1, 2), N, True),
    (2 * X, N, N, False),
]


@pytest.mark.parametrize(("index", "rows", "columns", "expected"), FITS, ids=str)
def test_what_int32_holds(index: sympy.Expr, rows: Any, columns: Any, expected: bool) -> None:
    assert fits_int32(index, program(rows, columns)) is expected


OVERFLOWS = [
    (X * X, 100_000, 10, False),  # a place of an element, which int32 holds
    (Mod(X * X, 10), 100_000, 10, True),
    (Mod(X * X, 10), 1_000, 10, False),
    (Mod(30_000 * X, 7), 100_000, 10, True),
    (Mod(X * X, N), N, 10, True),
    (FloorDiv(N * X + Y, 3), N, N, False),
]


@pytest.mark.parametrize(("index", "rows", "columns", "expected"), OVERFLOWS, ids=str)
def test_functions_of_what_int32_does_not_hold(index: sympy.Expr, rows: Any, columns: Any, expected: bool) -> None:
    assert overflows(index, program(rows, columns)) is expected
