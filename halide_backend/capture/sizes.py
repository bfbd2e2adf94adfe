"""Sizes of tensors and loops: numbers, or expressions over the symbols of a dynamic shape."""

from __future__ import annotations

from typing import Any

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilToInt, FloorDiv, FloorToInt, RoundToInt, TruncToInt
from torch.utils._sympy.value_ranges import ValueRanges

from halide_backend.program.index import AxisSymbol, ValueSymbol
from halide_backend.program.loop_program import Extent

#: Halide's coordinates, extents and flat indices are int32.
MAX_ELEMENTS = 2**31 - 1

#: Sizes computed in floating point, such as those of an interpolation, 0.5 * n rounded: the graph has their values.
_ROUNDED = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)

#: Stands in for a size of which nothing is known yet, such as the number of nonzero elements.
_UNKNOWN_HINT = 128


def extent(size: Any) -> Extent:
    """`size` simplified: an int if it is known, else an expression."""
    if isinstance(size, int):
        return size
    simplified = reduced(V.graph.sizevars.simplify(sympy.sympify(size)))
    return int(simplified) if simplified.is_Integer else simplified


def reduced(expression: sympy.Expr) -> sympy.Expr:
    """`expression` with (a + c % d)//d + c//d for each (a + c)//d: what Inductor derives by different ways, the extent
    (n + 1)//2 and the stride (n - 1)//2 + 1, are then equal."""

    def quotient(whole: sympy.Expr, part: sympy.Expr) -> sympy.Expr:
        constant, rest = whole.as_coeff_Add()
        if not (part.is_Integer and part > 1 and constant.is_Integer):
            return FloorDiv(whole, part)
        return FloorDiv(rest + constant % part, part) + constant // part

    if not expression.has(FloorDiv):
        return expression
    return sympy.expand(expression.replace(FloorDiv, quotient))


def hint(size: Extent) -> int:
    """A typical value of `size`, at least 1."""
    if isinstance(size, int):
        return size
    return max(1, int(V.graph.sizevars.optimization_hint(size, fallback=_UNKNOWN_HINT)))


def quotient(whole: Extent, part: Extent) -> Extent | None:
    """`whole / part` if that is an integer for all values of the symbols, else None."""
    if isinstance(whole, int) and isinstance(part, int):
        return whole // part if whole % part == 0 else None
    numerator, denominator = sympy.fraction(sympy.together(sympy.cancel(sympy.sympify(whole) / part)))
    if denominator != 1:
        return None
    return int(numerator) if numerator.is_Integer else sympy.expand(numerator)


def is_equal(size: Extent, other: Extent) -> bool:
    """Whether both are the same number, as far as the graph's guards say."""
    return size == other or bool(V.graph.sizevars.statically_known_equals(size, other))


def is_size(symbol: sympy.Symbol) -> bool:
    """Whether `symbol` stands for a size of the graph rather than for an axis or an indirect index."""
    return not isinstance(symbol, AxisSymbol | ValueSymbol)


def sizes_of(expression: sympy.Expr) -> set[sympy.Expr]:
    """What of the graph `expression` is computed from: symbols, and whole numbers rounded from floating point."""
    if expression.is_Symbol:
        return {expression} if is_size(expression) else set()
    if isinstance(expression, _ROUNDED) and all(map(is_size, expression.free_symbols)):
        return {expression}
    return set().union(*map(sizes_of, expression.args))


def symbol_range(symbol: sympy.Symbol) -> ValueRanges[Any]:
    """What the graph's guards say of a size symbol."""
    ranges = V.graph.sizevars.shape_env.var_to_range
    return ranges.get(symbol, ValueRanges.unknown_int())


def is_nonnegative(symbol: sympy.Symbol) -> bool:
    """Whether the graph knows that `symbol` is never below zero: integers that a function is called with may be."""
    return bool(symbol.is_nonnegative or symbol_range(symbol).lower >= 0)
