"""Where a store goes: the dimensions of the output Func, or the positions of a scatter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import sympy

from halide_backend.program.access import is_contiguous
from halide_backend.program.index import FloorDiv, expanded, values_of
from halide_backend.program.index_range import extents_of
from halide_backend.program.loop_program import Axis, Extent, LoopProgram, Store

#: Layouts that are kept: mapping, rules and text of a kernel ask for those of the same stores.
_KEPT = 1024


@dataclass(frozen=True)
class OutputLayout:
    """An output Func's `variables` and, one for each, `dims` of (extent, stride); innermost dimension first.

    If `scattered`, variable `p` is a computed `position` (in units of its dimension's stride) and the others are axes
    that the update may treat as pure: a column before it, rows of memory after it.
    """

    variables: tuple[str, ...]
    dims: tuple[tuple[Extent, Extent], ...]
    offset: int = 0
    position: sympy.Expr | None = None

    @property
    def scattered(self) -> bool:
        return self.position is not None


def is_scatter(store: Store) -> bool:
    """Whether data say where elements go, or they are added to what is there."""
    return store.mode is not None or bool(values_of(store.index))


def stored_crosswise(stores: Iterable[Store], least: int) -> str:
    """The buffer of one of `stores`, in loops without reductions, which is contiguous along another axis than one
    before it that has both axes, of at least that many points, too; "" if there is none."""
    before: list[tuple[frozenset[str], str]] = []
    for store in stores:
        axes = frozenset(axis.name for axis in store.nest.iteration if axis.hint >= least)
        along = [name for name in axes if is_contiguous(store.index, name)]
        if len(along) != 1:
            continue
        if any(along[0] != other and {along[0], other} <= axes & shared for shared, other in before):
            return store.buffer
        before.append((axes, along[0]))
    return ""


def output_layout(store: Store, program: LoopProgram) -> OutputLayout:
    """An N-d box of memory if the index is one, else a scatter."""
    extent = next(buffer.extent for buffer in program.outputs if buffer.name == store.buffer)
    return _layout(store, extent, program.axes)


@lru_cache(_KEPT)
def _layout(store: Store, extent: Extent, loop_axes: tuple[Axis, ...]) -> OutputLayout:
    index = expanded(store.index)
    dims, rest = _dimensions(store, index, loop_axes)
    direct = store.mode is None and rest.is_Integer and not store.nest.reduction
    if direct and (store.distinct or _is_box(dims, _is_nonnegative)):
        names, boxes = tuple(axis.name for _, axis in dims), tuple((axis.extent, stride) for stride, axis in dims)
        return OutputLayout(names, boxes, int(rest))
    return _scatter(store, index, extent)


def is_distinct(store: Store, is_nonnegative: Callable[[sympy.Expr], bool] | None = None) -> bool:
    """Whether no two points share an element of a box of memory, for all sizes for which `is_nonnegative` says what of
    them is not negative, or for all there are."""
    dims, rest = _dimensions(store, expanded(store.index), store.nest.iteration)
    return rest.is_Integer and _is_box(dims, is_nonnegative or _is_nonnegative)


def _dimensions(
    store: Store, index: sympy.Expr, loop_axes: tuple[Axis, ...]
) -> tuple[list[tuple[Extent, Axis]], sympy.Expr]:
    """The axes of a store with their strides, by these, and what is left of the index."""
    axes = {axis.symbol: axis for axis in store.nest.iteration}
    coefficients = {symbol: index.coeff(symbol) for symbol in axes}
    rest = expanded(index - sum(c * s for s, c in coefficients.items()))
    hints = {axis.symbol: axis.hint for axis in loop_axes}
    dims = sorted(
        ((_number(coefficients[symbol]), axis) for symbol, axis in axes.items()),
        key=lambda dim: (_size_hint(dim[0], loop_axes), hints[dim[1].symbol]),
    )
    return dims, rest


def _number(expression: sympy.Expr) -> Extent:
    return int(expression) if expression.is_Integer else expression


def _size_hint(stride: Extent, axes: tuple[Axis, ...]) -> int:
    """A typical value of a stride: where its sizes are extents of axes, these have hints."""
    if isinstance(stride, int):
        return stride
    known = {axis.extent: axis.hint for axis in axes if axis.extent in stride.free_symbols}
    hinted = stride.xreplace({symbol: sympy.Integer(known.get(symbol, 64)) for symbol in stride.free_symbols})
    return int(hinted) if hinted.is_Integer else 64


def _is_box(dims: list[tuple[Extent, Axis]], is_nonnegative: Callable[[sympy.Expr], bool]) -> bool:
    """Whether no two points of the dimensions, ordered by stride, share an address.

    With symbolic strides only what holds for all sizes counts: each dimension starts where the previous one ends.
    """
    reach: Extent = 1
    for stride, axis in dims:
        if not is_nonnegative(expanded(stride - sympy.sympify(reach))):
            return False
        reach = expanded(sympy.sympify(stride) * axis.extent)
    return True


def _is_nonnegative(difference: sympy.Expr) -> bool:
    """Whether the integer `difference` of sizes is known to be zero or more."""
    if difference.is_nonnegative:
        return True
    factors = sympy.Mul.make_args(sympy.factor_terms(difference))
    sums = [factor for factor in factors if factor.is_Add]
    if len(factors) > 1 and len(sums) == 1 and all(factor.is_nonnegative for factor in factors if not factor.is_Add):
        return _is_nonnegative(sums[0])
    # a//d lies between (a - d + 1)/d and a/d; an integer above -1 is not negative.
    least = sympy.Integer(0)
    for term in sympy.Add.make_args(difference):
        factor, quotient = term.as_coeff_Mul()
        if isinstance(quotient, FloorDiv) and quotient.args[1].is_Integer:
            whole, part = quotient.args
            term = factor * (whole if factor < 0 else whole - part + 1) / part
        least += term
    return bool((least + 1).is_positive) and not least.has(FloorDiv)


def _scatter(store: Store, index: sympy.Expr, extent: Extent) -> OutputLayout:
    for axis in reversed(store.nest.iteration):
        # A column: the index is stride-1 in this axis and everything else moves by whole rows of it.
        others = expanded(index - axis.symbol)
        rows, count = _quotient(others, axis.extent), _quotient(sympy.sympify(extent), axis.extent)
        # Halide reads a stride that is no number from the buffer, unless it is an argument: only those of scatters are.
        named = isinstance(axis.extent, int) or is_scatter(store)
        if named and axis.symbol not in others.free_symbols and rows is not None and count is not None:
            return OutputLayout(
                (axis.name, "p"),
                ((axis.extent, 1), (_number(count), axis.extent)),
                position=rows,
            )
    return OutputLayout(("p",), ((extent, 1),), position=index)


def with_rows_apart(store: Store, program: LoopProgram) -> OutputLayout:
    """The layout of a store. Of a scatter to rows that never meet, as 256*x0 + v with v in [0, 256) has, these axes
    are dimensions, and the position is that within a row. At least one axis is left that moves it."""
    layout = output_layout(store, program)
    if layout.position is None:
        return layout
    count, unit = layout.dims[-1]
    strides, extents = {size.value for size in program.sizes}, extents_of(program)
    axes = [axis for axis in store.nest.iteration if axis.name not in layout.variables]
    position, rows = layout.position, list[tuple[str, Extent, Extent]]()
    for axis in sorted(axes, key=lambda axis: -_size_hint(_number(position.coeff(axis.symbol)), program.axes)):
        step = position.coeff(axis.symbol)
        within = expanded(position - step * axis.symbol)
        most, stride = _largest(within, extents), _number(expanded(step * unit))
        known = most is not None and _is_nonnegative(expanded(step - 1 - most))
        fits = _is_nonnegative(expanded(count - step * axis.extent))
        if known and fits and (isinstance(stride, int) or stride in strides) and len(rows) + 1 < len(store.nest.axes):
            rows.insert(0, (axis.name, axis.extent, stride))
            position, count = within, _number(step)
    if not rows:
        return layout
    names, dims = (name for name, _, _ in rows), ((extent, stride) for _, extent, stride in rows)
    variables, along = (*layout.variables, *names), (*layout.dims[:-1], (count, unit), *dims)
    return replace(layout, variables=variables, dims=along, position=position)


def _largest(index: sympy.Expr, extents: Mapping[sympy.Basic, Extent]) -> sympy.Expr | None:
    """The largest value of an index whose terms are coordinates, each times a number, and none of which is negative."""
    most = sympy.Integer(0)
    for term in sympy.Add.make_args(index):
        symbols = term.free_symbols.intersection(extents)
        factor = sympy.cancel(term / next(iter(symbols))) if len(symbols) == 1 else term
        if not factor.is_nonnegative or factor.free_symbols.intersection(extents):
            return None
        most += factor * (extents[symbols.pop()] - 1) if symbols else factor
    return expanded(most)


def _quotient(whole: sympy.Expr, part: Extent) -> sympy.Expr | None:
    """`whole` over `part`, None if that leaves a remainder, or may do so for some sizes."""
    numerator, denominator = sympy.fraction(sympy.cancel(whole / part))
    quotient = expanded(numerator)
    integers = all(term.as_coeff_Mul()[0].is_Integer for term in sympy.Add.make_args(quotient))
    return quotient if denominator == 1 and integers else None
