"""Several axes as one: those of dynamic extents, and those that end before a tile of a transpose does.

Of outer axes Halide cannot fuse the loops where outputs are computed together; of one output it fuses them, but loses
the bounds of what is computed inside, and puts a thread's vectors into local memory. And of the dimensions of a grid
only one may be as long as a size that nobody knows. Axes that are reduced are fused to be shared out among threads, and
each load would then divide by a size.

A transpose is stored in tiles along one axis. Where that ends after a few elements, or within a vector, memory mostly
goes on along the next one, and so can the tile: its rows are quotients and remainders by a constant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import sympy

from halide_backend.errors import Unsupported
from halide_backend.program.access import WORD, is_contiguous
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.extents import product
from halide_backend.program.index import AxisSymbol, FloorDiv, Mod, SizeSymbol
from halide_backend.program.loop_program import (
    Apply,
    Axis,
    Extent,
    Load,
    LoopProgram,
    Nest,
    Reduction,
    Scan,
    Store,
    Value,
)
from halide_backend.program.operation_names import RECURRENCES
from halide_backend.program.store_layout import output_layout
from halide_backend.program.strided_loads import rows_as_columns, transposed_axes

#: Elements along the stored axis of a transpose that are whole tiles of any kind, and so many that what the last tile
#: is short of does not matter (permute_3102 of 7 heads: a tile of 32 elements would be empty to three quarters).
_TILE, _MANY = 64, 1024

#: The same of axes of which one is dynamic: with fewer, typically, half of the threads that store a tile store nothing,
#: and more would rarely be whole tiles.
_FILLED = 32

#: Bits of a cache line.
_LINE_BITS = 512

#: Elements of an axis that no transpose is read along: they share a sector or two (see strided_loads.py).
_NARROW = 8

#: Dimensions of a grid, and points of the two innermost axes of several outputs up to which a block has all of them.
_DIMENSIONS, _BLOCK = 3, 512


def flattened(program: LoopProgram) -> LoopProgram:
    """`program` with one axis in place of several outermost ones, and one in place of those that are reduced, if one of
    them is dynamic; and with one in place of those along which a transpose is stored or read, if the first is short, of
    outer ones that are more than a grid has, or of those along which rows end within a word.

    Raises:
        Unsupported: outer axes that have to be one cannot be.
    """
    joins = (_reduced_as_one, _outer_as_one, _repeated_as_one, _grid_of, _stored_as_one, _read_as_one, _rows_as_one)
    for join in joins:
        program = join(program)
    return program


def _grid_of(program: LoopProgram) -> LoopProgram:
    """`program`, if it reduces, or has several outputs and is no transpose, with few enough outer axes for a grid where
    each is a dimension of one: two are one where all outputs go on along them. The innermost, along which there may be
    vectors, stays what it is."""
    reduces = any(isinstance(value.attribute, Reduction) for value in program.values)
    scans = any(isinstance(value.attribute, Scan) for value in program.values)
    several = len(program.stores) > 1 and transposed_axes(program) is None
    if program.checks or scans or not (reduces or several):
        return program
    while len([axis for axis in program.outer if axis.extent != 1]) > _DIMENSIONS:
        if not reduces and math.prod(axis.hint for axis in program.outer[-2:]) <= _BLOCK:
            break
        pairs = itertools.permutations(program.outer[:-1], 2)
        known = (pair for pair in pairs if all(isinstance(axis.extent, int) for axis in pair))
        flattenings = (_Flattening(pair) for pair in known)
        joined = next((each for each in flattenings if all(each.is_line(store) for store in program.stores)), None)
        if joined is None:
            break
        program = joined.program(program)
    return program


def _repeated_as_one(program: LoopProgram) -> LoopProgram:
    """`program` with one axis in place of the first two that all outputs are stored along, if the first has a few
    equal elements of each result, or those of a word, which are loaded from different places: what lies along both is
    stored together."""
    layouts = [output_layout(store, program) for store in program.stores]
    order = layouts[0].variables
    if any(layout.scattered for layout in layouts) or program.checks or len(order) < 2:
        return program
    axes = {axis.name: axis for axis in program.axes}
    inner, outer = (axes[name] for name in order[:2])
    few = all(isinstance(axis.extent, int) for axis in (inner, outer)) and 1 < inner.hint < _NARROW
    if not few or not (_is_repeated(program, inner) or _is_word(program, inner)):
        return program
    flattening = _Flattening((outer, inner))
    return flattening.program(program) if all(flattening.is_line(store) for store in program.stores) else program


def _is_repeated(program: LoopProgram, inner: Axis) -> bool:
    """Whether no value differs along the axis."""
    return not any(inner.name in value.axes for value in program.values)


def _is_word(program: LoopProgram, inner: Axis) -> bool:
    """Whether what is stored along the axis is a word, whose elements are no neighbours where they are loaded."""
    loads = [value.attribute.index for value in program.values if isinstance(value.attribute, Load)]
    bits = {ELEMENT[buffer.dtype][1] * inner.hint for buffer in program.outputs}
    pointwise = all(map(_is_masked_pointwise, program.values))
    return bits == {WORD} and pointwise and not any(is_contiguous(index, inner.name) for index in loads)


def _stored_as_one(program: LoopProgram) -> LoopProgram:
    """`program` with one axis in place of those along which the memory of all outputs goes on, up to whole tiles of a
    transpose, if it is one."""

    def enough(count: int, known: bool) -> bool:
        return count % _TILE == 0 or count >= _MANY if known else count >= _FILLED

    return _stored_along(program, enough)


def with_whole_lines(program: LoopProgram) -> LoopProgram:
    """`program`, if it is pointwise and a transpose, with one axis in place of those along which the memory of its
    outputs goes on, if the first ends within a line of memory: the rows of tiles are lines then. What is not read
    across them has to go on like they do."""
    if not program.stores or not all(map(_is_pointwise, program.values)):
        return program
    line = _LINE_BITS // max(ELEMENT[buffer.dtype][1] for buffer in program.outputs)
    found = _stored_along(program, lambda count, known: not known or count >= line)
    turned = transposed_axes(found) if found is not program else None
    if turned is None or any(axis.hint < line for axis in found.axes if axis.name in turned):
        return program
    loads = [value.attribute.index for value in found.values if isinstance(value.attribute, Load)]
    beside = (index for index in loads if not is_contiguous(index, turned[0]))
    return program if any(index.has(FloorDiv, Mod) for index in beside) else found


def _stored_along(program: LoopProgram, enough: Callable[[int, bool], bool]) -> LoopProgram:
    """`program` with one axis in place of those along which the memory of all outputs goes on, until so many elements
    are `enough`, whose number is known or not, if that is a transpose."""
    layouts = [output_layout(store, program) for store in program.stores]
    order = layouts[0].variables
    if any(layout.scattered for layout in layouts) or program.checks:
        return program
    axes = {axis.name: axis for axis in program.axes}
    loads = [value.attribute for value in program.values if isinstance(value.attribute, Load)]
    joined: list[Axis] = []
    for name in order:
        count = math.prod(axis.hint for axis in joined)
        read_along = joined and any(is_contiguous(load.index, name) for load in loads)
        known = all(isinstance(axis.extent, int) for axis in (*joined, axes[name]))
        if read_along or (joined and enough(count, known)):
            break
        joined.insert(0, axes[name])
    if len(joined) < 2:
        return program
    flattening = _Flattening(joined)
    if not all(flattening.is_line(store) for store in program.stores):
        return program
    found = flattening.program(program)
    return program if transposed_axes(found) is None else found


def _read_as_one(program: LoopProgram) -> LoopProgram:
    """`program` with one axis in place of two along which the memory of a load goes on, if the first is too short for
    the tiles of a transpose, which it becomes."""
    if program.checks or transposed_axes(program) is not None:
        return program
    axes = {axis.name: axis for axis in program.axes}
    for load in (value.attribute for value in program.values if isinstance(value.attribute, Load)):
        for name, axis in axes.items():
            if not is_contiguous(load.index, name) or not isinstance(axis.extent, int) or axis.extent >= _NARROW:
                continue
            above = [each for each in axes.values() if load.index.coeff(each.symbol) == axis.extent and each != axis]
            flattening = _Flattening([*above, axis])
            if len(above) == 1 and all(flattening.is_line(store) for store in program.stores):
                found = flattening.program(program)
                if transposed_axes(found) is not None:
                    return found
    return program


def _rows_as_one(program: LoopProgram) -> LoopProgram:
    """`program` with one axis in place of those along which its outputs and what it loads for each of their elements go
    on, if rows of a few bits an element end within a word: vectors go on in the next row, and what is the same for all
    rows, a bias, is read at a remainder."""
    layouts = [output_layout(store, program) for store in program.stores]
    order, sizes = layouts[0].variables, [ELEMENT[buffer.dtype][1] for buffer in program.outputs]
    scattered = any(layout.scattered or layout.variables != order for layout in layouts)
    if program.checks or scattered or max(sizes) >= WORD or not all(map(_is_pointwise, program.values)):
        return program
    axes = {axis.name: axis for axis in program.axes}
    if any(not isinstance(axes[name].extent, int) for name in order):
        return program
    loads = [value.attribute for value in program.values if isinstance(value.attribute, Load)]
    joined: list[Axis] = []
    for name in order:
        joined.insert(0, axes[name])
        if ends := math.prod(axis.hint for axis in joined) * min(sizes) % WORD:
            continue
        break
    if len(joined) < 2:
        return program
    flattening, names = _Flattening(joined), {axis.name for axis in joined}
    whole = [load for load in loads if names <= {symbol.name for symbol in load.index.free_symbols}]
    lines = all(flattening.is_line(store) for store in program.stores) and all(map(flattening.reads_line, whole))
    if not whole or not lines:
        return program
    # The last vector may only be short if what it reads beyond the end is at a remainder.
    divided = any(flattening.index(load.index).has(FloorDiv) for load in loads)
    return program if ends and divided else flattening.program(program)


def _is_pointwise(value: Value) -> bool:
    """Whether it is loaded where its index says, or made of values of the same element."""
    if isinstance(value.attribute, Load):
        return not value.operands
    return not isinstance(value.attribute, Reduction | Scan | Apply | sympy.Expr) and value.operation not in RECURRENCES


def _is_masked_pointwise(value: Value) -> bool:
    """The same of a value that is loaded under masks, or is its place."""
    return _is_pointwise(value) or (isinstance(value.attribute, Load | sympy.Expr) and value.operation != "indirect")


def _reduced_as_one(program: LoopProgram) -> LoopProgram:
    """`program` with one axis in place of those over which everything is reduced, if memory is one line along them."""
    reduced = {value.attribute.axes for value in program.values if isinstance(value.attribute, Reduction)}
    if len(reduced) != 1:
        return program
    (axes,) = reduced
    if len(axes) < 2:
        return program
    flattening = _Flattening(axes)
    return flattening.program(program) if flattening.keeps_lines(program) else program


def _outer_as_one(program: LoopProgram) -> LoopProgram:
    """`program` with one axis in place of several, if several are outermost and one of them is dynamic.

    The innermost axis of a kernel without reductions stays what it is where its extent is known: vectors lie along it.
    A program with one output that is not one line of memory along them stays as it is, and so does a transpose with
    one: tiles lie along two of its axes; and what stores short rows as columns, of which a thread has all.

    Raises:
        Unsupported: of several outputs one is not one line of memory along them, or one of the axes is scanned.
    """
    reduces = any(isinstance(value.attribute, Reduction) for value in program.values)
    outer = program.outer
    if outer and isinstance(outer[-1].extent, int) and not reduces:
        outer = outer[:-1]
    if len(outer) < 2 or all(isinstance(axis.extent, int) for axis in outer):
        return program
    flattening = _Flattening(outer)
    if len(program.stores) == 1:
        (store,) = program.stores
        if not flattening.is_line(store) and not reduces:
            flattening = _Flattening(_as_stored(outer, store, program))
        if not flattening.is_line(store) or transposed_axes(program) or rows_as_columns(program):
            return program
    scans = [value.attribute.axes for value in program.values if isinstance(value.attribute, Scan)]
    if not set(outer).isdisjoint(itertools.chain(*scans)):
        raise Unsupported("scan-of-dynamic-length", f"a scan over {', '.join(map(str, program.outer))}")
    return flattening.program(program)


def _as_stored(axes: Sequence[Axis], store: Store, program: LoopProgram) -> list[Axis]:
    """`axes` in the order in which memory is written along them, as far as it is, outermost first."""
    order = [*output_layout(store, program).variables]
    return sorted(axes, key=lambda axis: -order.index(axis.name) if axis.name in order else -len(order))


class _Flattening:
    """Adjacent axes, outermost first, as one axis that has the name of the last."""

    def __init__(self, axes: Sequence[Axis]) -> None:
        hint = math.prod(axis.hint for axis in axes)
        self._names = {axis.name for axis in axes}
        self._axis = Axis(axes[-1].name, product(axis.extent for axis in axes), hint)
        number = self._axis.symbol
        self._digits: dict[sympy.Symbol, sympy.Expr] = {}
        weight: Extent = 1
        rest: sympy.Expr = number
        quotient: sympy.Expr = number
        for axis in reversed(axes):
            extent = sympy.sympify(axis.extent)
            self._digits[axis.symbol] = quotient if axis is axes[0] else Mod(quotient, extent)
            if axis is not axes[-1]:
                rest -= weight * axis.symbol
            # By one size after another, each of which the host has prepared: products are computed in the kernel.
            quotient, weight = FloorDiv(quotient, extent), product((weight, axis.extent))
        # The last axis by the number and the others: they vanish from what runs along all of them.
        self._last = {number: rest}
        self._others = {axis.symbol for axis in axes[:-1]}

    def index(self, index: sympy.Expr) -> sympy.Expr:
        line = self._line(index)
        return index.xreplace(self._digits) if line is None else line

    def _line(self, index: sympy.Expr) -> sympy.Expr | None:
        line = sympy.expand(index.xreplace(self._last))
        return None if line.free_symbols & self._others else line

    def is_line(self, store: Store) -> bool:
        """Whether memory is written in the order of the axes, each beginning where the one inside it ends."""
        line = self._line(store.index)
        if store.mode is not None or line is None or self._axis.symbol not in line.free_symbols:
            return False
        return all(isinstance(symbol, AxisSymbol | SizeSymbol) for symbol in line.free_symbols)

    def reads_line(self, load: Load) -> bool:
        """Whether memory is read in the order of the axes."""
        return not load.coordinates and self._line(load.index) is not None

    def keeps_lines(self, program: LoopProgram) -> bool:
        """Whether nothing in `program` is other than a line along the axes, and each nest has all of them or none."""
        for value in program.values:
            match value.attribute:
                case Load(index=index, coordinates=coordinates):
                    indices = [index, *(coordinate.index for coordinate in coordinates)]
                case Reduction(position=sympy.Expr() as position):
                    indices = [position]
                case Scan():
                    return False
                case sympy.Expr() as index:
                    indices = [index]
                case _:
                    continue
            if any(self._line(index) is None for index in indices):
                return False
        if any(self._line(store.index) is None for store in program.stores):
            return False
        nests = [axes for store in program.stores for axes in (store.nest.iteration, store.nest.reduction)]
        own = [self._names.intersection(axis.name for axis in nest) for nest in nests]
        return all(not names or names == self._names for names in own)

    def value(self, value: Value) -> Value:
        attribute = value.attribute
        if isinstance(attribute, Load):
            coordinates = tuple(replace(c, index=self.index(c.index)) for c in attribute.coordinates)
            attribute = replace(attribute, index=self.index(attribute.index), coordinates=coordinates)
        elif isinstance(attribute, Reduction):
            position = attribute.position if attribute.position is None else self.index(attribute.position)
            attribute = replace(attribute, axes=self.axes(attribute.axes), position=position)
        elif isinstance(attribute, sympy.Expr):
            attribute = self.index(attribute)
        axes = value.axes - self._names
        return replace(value, attribute=attribute, axes=axes if axes == value.axes else axes | {self._axis.name})

    def store(self, store: Store) -> Store:
        line = self._line(store.index)
        if line is None:
            raise Unsupported(
                "dynamic-store-not-contiguous",
                f"one of several outputs is stored at {store.index}, with gaps or jumps along {sorted(self._names)}",
            )
        nest = Nest(self.axes(store.nest.iteration), self.axes(store.nest.reduction))
        return replace(store, index=line, nest=nest)

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(dict.fromkeys(self._axis if axis.name in self._names else axis for axis in axes))

    def program(self, program: LoopProgram) -> LoopProgram:
        return replace(
            program,
            values=tuple(map(self.value, program.values)),
            stores=tuple(map(self.store, program.stores)),
            outer=self.axes(program.outer),
        )
