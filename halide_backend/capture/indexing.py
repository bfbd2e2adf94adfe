"""Facts about index expressions: ranges, and what they are made of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
from torch.utils._sympy.functions import Max, ModularIndexing
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from halide_backend.capture.sizes import extent, is_equal, quotient, symbol_range
from halide_backend.program.loop_program import Axis, Extent


def value_range(index: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> tuple[int, int] | None:
    """Smallest and largest value of `index` with each symbol in [0, extent), or None if unknown."""
    if index.is_Integer:
        return int(index), int(index)
    bounds = _bounds(index, extents)
    if not (bounds.lower.is_Integer and bounds.upper.is_Integer):
        return None
    return int(bounds.lower), int(bounds.upper)


def may_be_negative(index: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> bool:
    """Whether the bounds of each symbol by itself leave room for a value of `index` below 0."""
    return not index.is_nonnegative and bool(_bounds(index, extents).lower < 0)


def _bounds(index: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> ValueRanges[Any]:
    return bound_sympy(index, {symbol: _range(symbol, extents) for symbol in index.free_symbols})


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
    a loop has n steps, or a multiple of them, or two loops that were one have, it is not."""
    extents = [axis.extent for axis in axes]
    extents += [extent(inner * outer) for outer, inner in itertools.pairwise(extents)]
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


def with_short_remainders(index: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> sympy.Expr:
    """`index` with x + 64 (y % 3) for (x + 64 y) % 192, where x is less than 64: a step along x is one of memory."""

    def remainder(whole: sympy.Expr, part: sympy.Expr, modulus: sympy.Expr) -> sympy.Expr:
        terms = sympy.Add.make_args(sympy.expand(whole))
        factors = [term.as_coeff_Mul()[0] for term in terms]
        if part == 1 and modulus.is_Integer and all(factor.is_Integer for factor in factors):
            units = {math.gcd(int(factor), int(modulus)) for factor in factors} - {1, int(modulus)}
            for unit in sorted(units, reverse=True):
                within = sympy.Add(*(term for term, factor in zip(terms, factors) if factor % unit))
                least, most = value_range(within, extents) or (-1, unit)
                if least >= 0 and most < unit:
                    rest = sympy.expand((whole - within) / unit)
                    return within + unit * ModularIndexing(rest, 1, modulus // unit)
        return ModularIndexing(whole, part, modulus)

    return index.replace(ModularIndexing, remainder) if index.has(ModularIndexing) else index


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
