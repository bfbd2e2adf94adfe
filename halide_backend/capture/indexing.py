"""Facts about index expressions: ranges, and the coordinates behind a flat index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from torch.utils._sympy.functions import Max
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from halide_backend.capture.sizes import is_equal, quotient, symbol_range
from halide_backend.program.loop_program import Axis, Coordinate, Extent


@dataclass(frozen=True)
class Bound:
    """What a mask says where it is true: `expression >= lower` and/or `expression < upper`."""

    expression: sympy.Expr
    lower: int | None = None
    upper: int | None = None


def value_range(index: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> tuple[int, int] | None:
    """Smallest and largest value of `index` with each symbol in [0, extent), or None if unknown."""
    if index.is_Integer:
        return int(index), int(index)
    bounds = bound_sympy(index, {symbol: _range(symbol, extents) for symbol in index.free_symbols})
    if not (bounds.lower.is_Integer and bounds.upper.is_Integer):
        return None
    return int(bounds.lower), int(bounds.upper)


def _range(symbol: sympy.Symbol, extents: Mapping[sympy.Symbol, Extent]) -> ValueRanges[Any]:
    size = extents.get(symbol)
    if size is None:
        return symbol_range(symbol)
    if isinstance(size, int):
        return ValueRanges(0, max(size - 1, 0))
    upper = bound_sympy(size - 1, {s: symbol_range(s) for s in size.free_symbols}).upper
    return ValueRanges(0, upper)


def without_empty(index: sympy.Expr, axes: Iterable[Axis]) -> sympy.Expr:
    """`index` within loops over `axes`, with n for the stride max(1, n) that Inductor gives to what may be empty: where
    a loop has n steps, or a multiple of them, it is not."""
    extents = [axis.extent for axis in axes]
    steps: dict[sympy.Expr, Extent] = {}
    for stride in index.atoms(Max):
        if len(stride.args) == 2 and 1 in stride.args:
            (length,) = (argument for argument in stride.args if argument != 1)
            # A guard may say that it is a number, as the elements of a head are.
            known = next((size for size in extents if is_equal(length, size)), None)
            if known is not None:
                steps[stride] = known
            elif any(quotient(size, length) is not None for size in extents):
                steps[stride] = length
    return sympy.expand(index.xreplace(steps)) if steps else index


def affine(index: sympy.Expr, symbols: Iterable[sympy.Symbol]) -> tuple[dict[sympy.Symbol, int], int] | None:
    """Integer coefficients of `symbols` and the constant of `index`, or None if it is not of that form."""
    index = sympy.expand(index)
    coefficients: dict[sympy.Symbol, int] = {}
    rest = index
    for symbol in symbols:
        coefficient = index.coeff(symbol)
        if not coefficient.is_Integer:
            return None
        coefficients[symbol] = int(coefficient)
        rest -= coefficient * symbol
    rest = sympy.expand(rest)
    return (coefficients, int(rest)) if rest.is_Integer else None


def coordinates(
    index: sympy.Expr,
    sizes: Sequence[Extent],
    strides: Sequence[Extent],
    extents: Mapping[sympy.Symbol, Extent],
    bounds: Sequence[Bound],
) -> tuple[Coordinate, ...]:
    """The flat `index` split along the dimensions of its buffer, outermost first.

    A masked load is made safe by clamping each coordinate to its dimension. That keeps its value only if, wherever the
    mask is true, every coordinate is in range by itself: the split is returned only if `bounds` (what the mask says) or
    the loop ranges prove this, otherwise ().
    """
    flat = affine(index, list(index.free_symbols))
    if flat is None or not all(isinstance(n, int) for n in (*sizes, *strides)):
        return ()
    terms, constant = dict(flat[0]), flat[1]
    split = []
    dims = sorted(((st, sz) for sz, st in zip(sizes, strides) if sz > 1 and st > 0), reverse=True)
    for stride, size in dims:
        expression = sympy.Integer(0)
        for symbol, coefficient in list(terms.items()):
            if coefficient % stride == 0:
                expression += (coefficient // stride) * symbol
                del terms[symbol]
        # The nearest multiple: an offset of -W-2 is one row up and two columns left.
        whole = (2 * constant + stride) // (2 * stride)
        expression += whole
        constant -= whole * stride
        split.append(Coordinate(expression, size, stride))
    if terms or constant:
        return ()
    proved = all(_in_range(c.index, c.extent, extents, bounds) for c in split)
    return tuple(split) if proved else ()


def _in_range(
    index: sympy.Expr,
    extent: int,
    extents: Mapping[sympy.Symbol, Extent],
    bounds: Sequence[Bound],
) -> bool:
    own = value_range(index, extents)
    lower = own is not None and own[0] >= 0
    upper = own is not None and own[1] < extent
    for bound in bounds:
        difference = sympy.expand(index - bound.expression)
        if not difference.is_Integer:
            continue
        shift = int(difference)
        lower = lower or (bound.lower is not None and bound.lower + shift >= 0)
        upper = upper or (bound.upper is not None and bound.upper + shift <= extent)
    return lower and upper
