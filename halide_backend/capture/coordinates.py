"""The coordinates behind the flat index of a masked load, each of which is clamped to its dimension."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace

import sympy

from halide_backend.capture.conditions import Bound, is_nonnegative
from halide_backend.capture.indexing import affine, value_range
from halide_backend.capture.sizes import extent, hint, is_size
from halide_backend.program.index import AxisSymbol, axes_of
from halide_backend.program.loop_program import Coordinate, Extent


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
    if known:
        splits = iter([_by_numbers(index, {}, dims)])
        if _is_of_a_part(bounds, extents):
            counted = _counted_from_bounds(index, bounds)
            splits = (_by_numbers(*each, d) for each in ((index, {}), counted) for d in _with_one_outer_loop(dims))
    else:
        counted = _counted_from_bounds(index, bounds)
        each_split = (_by_sizes(*each, d) for each in ((index, {}), counted) for d in _with_one_outer_loop(dims))
        splits = (_carried(split, extents, bounds) for split in each_split)
    proved = (each for each in splits if all(_in_range(c.index, c.extent, extents, bounds) for c in each))
    split = next(filter(None, proved), [])
    if known:
        return tuple(split)
    # Halide drops a clamp that does nothing if it can prove that, with sizes it often cannot.
    return tuple(replace(c, extent=0) if _in_range(c.index, c.extent, extents, ()) else c for c in split)


def beside_a_mask(
    index: sympy.Expr, size: Extent, extents: Mapping[sympy.Symbol, Extent], axes: Set[str]
) -> tuple[Coordinate, ...]:
    """The flat `index` of a load from `size` elements as what depends on the `axes` of its mask, and what does not: the
    line along memory. () if there is no such sum.

    Where the mask is true it is so at each step of the other loops, for which the index is in range then: the first
    coordinate alone is clamped, and all that is added to it stays in range.
    """
    # An element that is looked up may be another one at each step of the other loops.
    if not isinstance(size, int) or not all(isinstance(symbol, AxisSymbol) for symbol in index.free_symbols):
        return ()
    terms = sympy.Add.make_args(sympy.expand(index))
    apart = [term for term in terms if term.free_symbols and axes.isdisjoint(axes_of(term))]
    beside, within = sympy.Add(*apart), sympy.Add(*(term for term in terms if term not in apart))
    if not apart or not axes_of(within) <= axes:
        return ()
    span = value_range(beside, extents)
    if span is None or span[1] - span[0] >= size or _step(beside) >= _step(within):
        return ()
    return Coordinate(within + span[0], size - (span[1] - span[0]), 1), Coordinate(beside - span[0], 0, 1)


def _step(index: sympy.Expr) -> sympy.Expr:
    """The least number of elements by which a term of `index` steps."""
    factors = [abs(term.as_coeff_Mul()[0]) for term in sympy.Add.make_args(index) if term.free_symbols]
    return min(factors, default=sympy.oo)


def _with_one_outer_loop(dims: list[tuple[Extent, Extent]]) -> Iterator[list[tuple[Extent, Extent]]]:
    """`dims`, and the same with the outermost as one dimension, as Inductor may have made one loop of images and
    channels."""
    yield dims
    while len(dims) > 1:
        (outer, count), (stride, size) = dims[:2]
        if sympy.expand(outer - stride * size) != 0:
            return
        dims = [(stride, extent(count * size)), *dims[2:]]
        yield dims


def _is_of_a_part(bounds: Sequence[Bound], extents: Mapping[sympy.Symbol, Extent]) -> bool:
    """Whether a mask is false during more than half of a loop: it is no edge, beside which clamps do nothing
    (program/main_pieces.py)."""
    ends: dict[sympy.Expr, tuple[int, int]] = {}
    for bound in bounds:
        whole = value_range(bound.expression, extents)
        if whole is None:
            continue
        first, last = ends.get(bound.expression, whole)
        first = first if bound.lower is None else max(first, bound.lower)
        last = last if bound.upper is None else min(last, bound.upper - 1)
        ends[bound.expression] = first, last
        if 2 * (last + 1 - first) < whole[1] + 1 - whole[0]:
            return True
    return False


def _counted_from_bounds(
    index: sympy.Expr, bounds: Sequence[Bound]
) -> tuple[sympy.Expr, dict[sympy.Symbol, sympy.Expr]]:
    """`index` with a symbol for each expression that a mask bounds from below, counted from there, and what they are.

    Rows of which the mask leaves the last ones begin with the first of them, whatever loops make up their number.
    """
    counted: dict[sympy.Symbol, sympy.Expr] = {}
    for bound in bounds:
        symbols = {symbol for symbol in bound.expression.free_symbols if not is_size(symbol)}
        if bound.lower is None or not symbols:
            continue
        first = min(symbols, key=str)
        if (step := bound.expression.coeff(first)) == 0:
            continue  # A quotient or a remainder of it.
        times = index.coeff(first) / step
        rest = sympy.expand(index - times * bound.expression)
        by_sizes = times.is_integer and all(map(is_size, times.free_symbols))
        if times != 0 and by_sizes and symbols.isdisjoint(rest.free_symbols):
            symbol = sympy.Dummy(integer=True)
            counted[symbol] = bound.expression - bound.lower
            index = sympy.expand(rest + times * (symbol + bound.lower))
    return index, counted


def _by_numbers(
    index: sympy.Expr, counted: Mapping[sympy.Symbol, sympy.Expr], dims: Sequence[tuple[int, int]]
) -> list[Coordinate]:
    """The split of `index`, in which symbols stand for what is `counted`."""
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
        split.append(Coordinate(sympy.expand(expression.xreplace(counted)), size, stride))
    return [] if terms or constant else split


def _by_sizes(
    index: sympy.Expr, counted: Mapping[sympy.Symbol, sympy.Expr], dims: Sequence[tuple[Extent, Extent]]
) -> list[Coordinate]:
    """The same where strides depend on sizes: each polynomial of these is a sum of multiples of the strides."""
    rest = sympy.expand(index)
    parts: list[tuple[sympy.Expr, sympy.Expr]] = []
    for symbol in [symbol for symbol in index.free_symbols if symbol in counted or not is_size(symbol)]:
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
    whole = (sympy.expand(expression.xreplace(counted)) for expression in found)
    return [Coordinate(expression, size, stride) for expression, (stride, size) in zip(whole, dims)]


def _carried(
    split: list[Coordinate], extents: Mapping[sympy.Symbol, Extent], bounds: Sequence[Bound]
) -> list[Coordinate]:
    """`split` with coordinates that are beyond an end of their dimension by less than its size counted from the next or
    the last step of the one around it: of a row that is read two columns left of its first, the last but one above."""
    found = list(split)
    for number in reversed(range(1, len(found))):
        each, around = found[number], found[number - 1]
        whole = sympy.expand(around.stride - each.stride * each.extent) == 0
        if not whole or _in_range(each.index, each.extent, extents, bounds):
            continue
        for steps in (1, -1):
            moved = sympy.expand(each.index + steps * each.extent)
            if _in_range(moved, each.extent, extents, bounds):
                found[number] = replace(each, index=moved)
                found[number - 1] = replace(around, index=around.index - steps)
                break
    return found


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
        lower = lower or (bound.lower is not None and is_nonnegative(above + bound.lower, {}))
        upper = upper or (bound.upper is not None and is_nonnegative(-below - bound.upper, {}))
    return lower and upper
