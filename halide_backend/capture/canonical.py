"""One form for all programs that compute the same: equal programs give equal kernel texts, and one artifact."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv

from halide_backend.capture.closed_index import closed
from halide_backend.capture.sizes import hint, is_nonnegative, is_size, sizes_of
from halide_backend.errors import Unsupported
from halide_backend.program.index import AxisSymbol, SizeSymbol, ValueSymbol
from halide_backend.program.index_range import overflows
from halide_backend.program.loop_program import (
    Axis,
    Buffer,
    Check,
    Coordinate,
    Extent,
    Indirect,
    Load,
    LoopProgram,
    Nest,
    Reduction,
    Scan,
    Size,
    Steps,
    Store,
    Value,
)
from halide_backend.program.store_layout import is_distinct, is_scatter

#: Points beyond the end of a nest that its blocks and threads may count, all rounding up included.
_BEYOND = 1 << 16


def canonical(
    draft: LoopProgram,
    positions: Sequence[int],
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    *,
    flattened: bool,
) -> tuple[LoopProgram, tuple[sympy.Expr, ...]]:
    """`draft` with its values renumbered, its buffers renamed and its size symbols called n0, n1, ...

    `positions` are the numbers by which the draft's operands refer to its values; `inputs` and `outputs` map the
    names its loads and stores use to the kernel's own. With `flattened` one number counts the points of all loops: it
    is a size, too, which the launcher refuses where it does not fit. What values are made of is no size: the graph
    computes it with Python's integers, k0, k1, ..., unless it is a polynomial of sizes and their quotients by numbers.

    Also returns what the caller passes for each of the program's sizes, in the graph's own symbols.

    Raises:
        Unsupported: a size is not an integer, or an index is computed from what int32 may not hold.
    """
    order = {old: new for new, old in enumerate(positions)}
    symbols = {ValueSymbol.of(old): ValueSymbol.of(new) for old, new in order.items()}
    sizes = tuple(dict.fromkeys(s for e in _expressions(draft) for s in _sizes(e)))
    lengths = {axis.extent for axis in draft.axes}
    for number, symbol in enumerate(sizes):
        symbols[symbol] = SizeSymbol(f"n{number}", nonnegative=symbol in lengths or is_nonnegative(symbol))
    data = {
        e: SizeSymbol(f"k{number}", nonnegative=e.is_Symbol and is_nonnegative(e))
        for number, e in enumerate(_data(draft, frozenset(sizes)))
    }
    for symbol in (*sizes, *data):
        if not symbol.is_integer:
            raise Unsupported("size-not-integer", f"the size {symbol} is not an integer")
    renaming = _Renaming(order, symbols, data, inputs, outputs)
    program = renaming.program(draft)
    stores = (replace(new, distinct=_is_distinct(old, new)) for old, new in zip(draft.stores, program.stores))
    program = replace(program, stores=tuple(stores))
    _check_indices(program)
    extents = {buffer.extent for buffer in (*draft.inputs, *draft.outputs)}
    strides = {stride for store in draft.stores for stride in _strides(store)}
    points = {_points(draft.axes), _points(draft.outer)} if flattened else set()
    derived = [e for e in extents | strides | points if isinstance(e, sympy.Expr) and e not in sizes]
    # By the program's names, not by the graph's: the same kernel of another graph has the same order.
    derived.sort(key=lambda expression: str(renaming.expression(expression)))
    named = [Size(f"n{number}", symbols[symbol], hint=hint(symbol)) for number, symbol in enumerate(sizes)]
    products = [Size(f"m{number}", renaming.expression(expression)) for number, expression in enumerate(derived)]
    passed = [Size(symbol.name, symbol, data=True) for symbol in data.values()]
    return replace(program, sizes=(*named, *products, *passed)), (*sizes, *derived, *data)


def _check_indices(program: LoopProgram) -> None:
    loads = [value.attribute for value in program.values if isinstance(value.attribute, Load)]
    coordinates = (coordinate.index for load in loads for coordinate in load.coordinates)
    for index in (*(load.index for load in loads), *coordinates, *(store.index for store in program.stores)):
        if overflows(index, program):
            raise Unsupported("index-beyond-int32", f"the index {index}")


def _is_distinct(store: Store, renamed: Store) -> bool:
    """Whether only what the graph knows of its sizes says that no two points of a store share an element."""
    known = V.graph.sizevars
    return not (is_scatter(store) or is_distinct(renamed)) and is_distinct(
        store, lambda each: bool(known.statically_known_geq(each, 0))
    )


def _strides(store: Store) -> Iterator[sympy.Expr]:
    index = sympy.expand(store.index)
    for axis in store.nest.iteration:
        coefficient = index.coeff(axis.symbol)
        if not coefficient.is_Integer:
            yield coefficient
    if is_scatter(store):
        # Its rows are as long as a loop.
        yield from (axis.extent for axis in store.nest.iteration if isinstance(axis.extent, sympy.Expr))


def _points(axes: Sequence[Axis]) -> Extent:
    """Points of a nest with those beyond its end, or 0 if they are known."""
    count = sympy.expand(sympy.prod([axis.extent for axis in axes]))
    return 0 if count.is_Integer else count + _BEYOND


def _sizes(expression: Extent) -> list[sympy.Expr]:
    return [] if isinstance(expression, int) else sorted(sizes_of(expression), key=str)


def _expressions(program: LoopProgram) -> Iterator[Extent]:
    """Everything but values in which a size symbol may stand, in an order that only the program decides."""
    # Axes first: most of their extents are one symbol, which leaves nothing to the graph's names.
    for axis in program.axes:
        yield axis.extent
    for buffer in (*program.inputs, *program.outputs):
        yield buffer.extent
    for value in program.values:
        match value.attribute:
            case Load(index=index, coordinates=coordinates, inside=inside):
                yield index
                yield from (each for c in coordinates for each in (c.index, c.extent, c.stride))
                if inside:
                    yield inside.end
            case Indirect(size=size):
                yield size
            case Reduction(position=sympy.Expr() as position):
                yield position
    for store in program.stores:
        yield store.index


def _data(program: LoopProgram, sizes: frozenset[sympy.Symbol]) -> list[sympy.Expr]:
    """What the values of `program` take from the graph: whole expressions, or sizes beside loop variables."""
    found: dict[sympy.Expr, None] = {}
    for value in program.values:
        if not isinstance(value.attribute, sympy.Expr):
            continue
        expression, terms = value.attribute, _sizes(value.attribute)
        if not all(map(is_size, expression.free_symbols)):
            found |= dict.fromkeys(term for term in terms if term not in sizes)
        elif not (sizes.issuperset(terms) and _is_counted(expression)):
            found[expression] = None
    return list(found)


def _is_counted(expression: sympy.Expr) -> bool:
    """Whether `expression` is a polynomial of symbols and of quotients by numbers, which kernels compute themselves."""

    def quotient(whole: sympy.Expr, part: sympy.Expr) -> sympy.Expr:
        return sympy.Dummy() if part.is_Integer and part > 0 and _is_counted(whole) else sympy.nan

    plain = expression.replace(FloorDiv, quotient)
    return bool(plain.is_polynomial(*plain.free_symbols))


@dataclass(frozen=True)
class _Renaming:
    positions: Mapping[int, int]
    symbols: Mapping[sympy.Symbol, sympy.Symbol]
    data: Mapping[sympy.Expr, sympy.Symbol]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]

    def expression(self, index: sympy.Expr) -> sympy.Expr:
        return closed(index.xreplace(self.symbols))

    def extent(self, size: Extent) -> Extent:
        return size if isinstance(size, int) else self.expression(size)

    def axis(self, axis: Axis) -> Axis:
        return replace(axis, extent=self.extent(axis.extent))

    def axes(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(map(self.axis, axes))

    def nest(self, nest: Nest) -> Nest:
        return Nest(self.axes(nest.iteration), self.axes(nest.reduction))

    def buffer(self, buffer: Buffer) -> Buffer:
        return replace(buffer, extent=self.extent(buffer.extent))

    def attribute(self, attribute: object) -> object:
        match attribute:
            case Load():
                return Load(
                    self.inputs[attribute.buffer],
                    self.expression(attribute.index),
                    tuple(map(self.coordinate, attribute.coordinates)),
                    self.steps(attribute.inside),
                )
            case Indirect():
                return replace(attribute, size=self.extent(attribute.size))
            case Reduction():
                position = attribute.position
                return replace(
                    attribute,
                    axes=self.axes(attribute.axes),
                    position=None if position is None else self.expression(position),
                )
            case Scan():
                return replace(attribute, axes=self.axes(attribute.axes))
            case sympy.Expr():
                return self.expression(attribute.xreplace(self.data))
        return attribute

    def steps(self, steps: Steps | None) -> Steps | None:
        if steps is None:
            return None
        axis = self.expression(AxisSymbol(steps.axis))
        return Steps(str(axis), steps.first, self.extent(steps.end))

    def coordinate(self, coordinate: Coordinate) -> Coordinate:
        index, size, stride = self.expression(coordinate.index), coordinate.extent, coordinate.stride
        return Coordinate(index, self.extent(size), self.extent(stride))

    def value(self, value: Value) -> Value:
        operands = tuple(self.positions[operand] for operand in value.operands)
        return replace(value, operands=operands, attribute=self.attribute(value.attribute))

    def store(self, store: Store) -> Store:
        return replace(
            store,
            buffer=self.outputs[store.buffer],
            index=self.expression(store.index),
            value=self.positions[store.value],
            nest=self.nest(store.nest),
        )

    def program(self, draft: LoopProgram) -> LoopProgram:
        return replace(
            draft,
            inputs=tuple(map(self.buffer, draft.inputs)),
            outputs=tuple(map(self.buffer, draft.outputs)),
            values=tuple(map(self.value, draft.values)),
            stores=tuple(map(self.store, draft.stores)),
            checks=tuple(Check(self.positions[c.condition], c.error, c.message) for c in draft.checks),
            outer=self.axes(draft.outer),
        )
