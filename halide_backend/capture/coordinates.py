"""The coordinates behind the flat index of a masked load, each of which is clamped to its dimension."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy

from halide_backend.capture.conditions import is_nonnegative
from halide_backend.capture.indexing import affine
from halide_backend.capture.sizes import hint, is_size
from halide_backend.program.loop_program import Coordinate, Extent


@dataclass(frozen=True)
class Bound:
    """What a mask says where it is true: `expression >= lower` and/or `expression < upper`."""

    expression: sympy.Expr
    lower: int | None = None
    upper: int | None = None


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
    dims = [(stride, size) for stride, size in zip(strides, sizes) if size != 1 and stride != 0]
    dims.sort(key=lambda dim: (hint(dim[0]), hint(dim[1])), reverse=True)
    if any(size == 0 for _, size in dims):
        return ()
    known = all(isinstance(n, int) for dim in dims for n in dim)
    split = _by_numbers(index, dims) if known else _by_sizes(index, dims)
    proved = all(_in_range(c.index, c.extent, extents, bounds) for c in split)
    if not proved or known:
        return tuple(split) if proved else ()
    # Halide drops a clamp that does nothing if it can prove that, with sizes it often cannot.
    return tuple(replace(c, extent=0) if _in_range(c.index, c.extent, extents, ()) else c for c in split)


def _by_numbers(index: sympy.Expr, dims: Sequence[tuple[int, int]]) -> list[Coordinate]:
    flat = affine(index, list(index.free_symbols))
    if flat is None:
        return []
    terms, constant = dict(flat[0]), flat[1]
    split = []
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
    return [] if terms or constant else split


def _by_sizes(index: sympy.Expr, dims: Sequence[tuple[Extent, Extent]]) -> list[Coordinate]:
    """The same where strides depend on sizes: each polynomial of these is a sum of multiples of the strides."""
    rest = sympy.expand(index)
    parts: list[tuple[sympy.Expr, sympy.Expr]] = []
    for symbol in [symbol for symbol in index.free_symbols if not is_size(symbol)]:
        parts.append((symbol, rest.coeff(symbol)))
        rest = sympy.expand(rest - parts[-1][1] * symbol)
    parts.append((sympy.Integer(1), rest))
    found = [sympy.Integer(0)] * len(dims)
    for symbol, polynomial in parts:
        for number, (stride, _) in enumerate(dims):
            times = _leading_multiple(polynomial, sympy.sympify(stride))
            found[number] += times * symbol
            polynomial = sympy.expand(polynomial - times * stride)
        if polynomial != 0:
            return []
    return [Coordinate(expression, size, stride) for expression, (stride, size) in zip(found, dims)]


def _leading_multiple(polynomial: sympy.Expr, stride: sympy.Expr) -> sympy.Integer:
    """How often `stride` is in `polynomial`, by the term of the stride that has the most factors."""
    leading = max(sympy.Add.make_args(sympy.expand(stride)), key=_degree)
    number, factors = leading.as_coeff_Mul()
    times = polynomial.coeff(factors) if factors != 1 else polynomial.as_coeff_Add()[0]
    ratio = times / number
    return ratio if ratio.is_Integer else sympy.Integer(0)


def _degree(term: sympy.Expr) -> int:
    return sum(int(power) for base, power in term.as_powers_dict().items() if not base.is_Integer)


def _in_range(
    index: sympy.Expr, extent: Extent, extents: Mapping[sympy.Symbol, Extent], bounds: Sequence[Bound]
) -> bool:
    lower = is_nonnegative(index, extents)
    upper = is_nonnegative(sympy.expand(extent - 1 - index), extents)
    for bound in bounds:
        # Conditions are about differences: i < n may be written as i - n < 0.
        above, below = (sympy.expand(each - bound.expression) for each in (index, index - extent))
        lower = lower or (bound.lower is not None and bool(above.is_Integer and bound.lower + above >= 0))
        upper = upper or (bound.upper is not None and bool(below.is_Integer and bound.upper + below <= 0))
    return lower and upper
