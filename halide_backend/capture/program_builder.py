"""Collects the values, stores and buffers of one fused group and freezes them into a `LoopProgram`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import sympy
from torch._inductor.virtualized import V

from halide_backend.algorithm.loop_program import (
    Axis,
    Buffer,
    Check,
    Load,
    LoopProgram,
    Nest,
    Reduction,
    Store,
    Value,
)
from halide_backend.capture.indexing import Bound
from halide_backend.errors import Unsupported

#: Halide's coordinates, extents and flat indices are int32.
MAX_ELEMENTS = 2**31 - 1

_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


@dataclass
class ProgramBuilder:
    """Mutable while the nodes of a group are recorded in program order.

    Buffers go by the name of their memory in the graph: a mutated input and the buffers that stand for its later
    versions are one.
    """

    row: tuple[Axis, ...]
    values: list[Value] = field(default_factory=list)
    indirect: dict[sympy.Symbol, int] = field(default_factory=dict)
    reads: dict[str, str] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)
    checks: dict[Check, None] = field(default_factory=dict)
    _positions: dict[Value, int] = field(default_factory=dict)

    # -- values ------------------------------------------------------------------------------------------------

    def value(
        self, operation: str, dtype: str, operands: tuple[int, ...], attribute: object
    ) -> int:
        """Position of the value, recorded once however often it is asked for."""
        axes: set[str] = set()
        for operand in operands:
            axes |= self.values[operand].axes
        if isinstance(attribute, Load):
            axes |= _axis_names(attribute.index)
        elif isinstance(attribute, sympy.Expr):
            axes |= _axis_names(attribute)
        elif isinstance(attribute, Reduction):
            axes -= {axis.name for axis in attribute.axes}
        value = Value(operation, dtype, operands, attribute, frozenset(axes))
        position = self._positions.get(value)
        if position is None:
            position = self._positions[value] = len(self.values)
            self.values.append(value)
        return position

    def number(self, position: int) -> float | int | None:
        """The Python number behind a constant, looking through casts; None for anything else."""
        value = self.values[position]
        while value.operation == "to_dtype":
            value = self.values[value.operands[0]]
        if value.operation == "constant":
            return value.attribute.number  # type: ignore[attr-defined, no-any-return]
        if value.operation == "index" and isinstance(value.attribute, sympy.Integer):
            return int(value.attribute)
        return None

    def check(self, condition: int, error: str, message: str) -> None:
        if self.number(condition) is not False:
            self.checks[Check(condition, error, message)] = None

    # -- what a mask says --------------------------------------------------------------------------------------

    def bounds(self, mask: int) -> tuple[Bound, ...]:
        """The conditions of the form `index < number` that all hold where `mask` is true."""
        value = self.values[mask]
        if value.operation in ("logical_and", "bitwise_and"):
            return self.bounds(value.operands[0]) + self.bounds(value.operands[1])
        if value.operation not in _FLIPPED:
            return ()
        left, right = (self._index(operand) for operand in value.operands)
        operation = value.operation
        if left is None or right is None:
            return ()
        if left.is_Integer:
            left, right, operation = right, left, _FLIPPED[operation]
        if not right.is_Integer:
            left, right = sympy.expand(left - right), sympy.Integer(0)
        limit = int(right)
        return (
            {
                "lt": Bound(left, upper=limit),
                "le": Bound(left, upper=limit + 1),
                "ge": Bound(left, lower=limit),
                "gt": Bound(left, lower=limit + 1),
            }[operation],
        )

    def _index(self, position: int) -> sympy.Expr | None:
        value = self.values[position]
        while value.operation == "to_dtype":
            value = self.values[value.operands[0]]
        if value.operation == "index":
            return value.attribute if isinstance(value.attribute, sympy.Expr) else None
        number = self.number(position)
        return sympy.Integer(number) if isinstance(number, int) else None

    # -- memory ------------------------------------------------------------------------------------------------

    def memory(self, name: str) -> str:
        """The graph's name for the memory behind buffer `name`."""
        scheduler = V.graph.scheduler
        renamed = scheduler.mutation_real_name.get(name, name) if scheduler else name
        return str(renamed)

    def layout(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes and strides (in elements) of a buffer."""
        layout = V.graph.get_buffer(name).get_layout()
        sizes, strides = [], []
        for size, stride in zip(layout.size, layout.stride):
            size, stride = (V.graph.sizevars.simplify(sympy.sympify(v)) for v in (size, stride))
            if not (size.is_Integer and stride.is_Integer):
                raise Unsupported(f"dynamic shape: {name} has size {size}, stride {stride}")
            sizes.append(int(size))
            strides.append(int(stride))
        return tuple(sizes), tuple(strides)

    def extent(self, name: str) -> int:
        """Elements from the data pointer to the last one the layout reaches.

        Raises:
            Unsupported: more than Halide's int32 indices can address.
        """
        layout = V.graph.get_buffer(name).get_layout()
        offset = V.graph.sizevars.simplify(sympy.sympify(layout.offset))
        sizes, strides = self.layout(name)
        extent = int(offset) + sum((n - 1) * s for n, s in zip(sizes, strides)) + 1
        if extent > MAX_ELEMENTS:
            raise Unsupported(f"buffer of {extent} elements, more than int32 can index")
        return extent

    def read(self, name: str) -> str:
        """Note that `name` is read from memory."""
        memory = self.memory(name)
        if memory in self.stores:
            raise Unsupported(f"{memory} is read at another index than it was written at")
        self.reads.setdefault(memory, name)
        return memory

    def stored(self, name: str, index: sympy.Expr) -> int | None:
        """The value that this group stored at `index` of buffer `name`, if it did."""
        store = self.stores.get(self.memory(name))
        if store is not None and store.index == index and store.mode is None:
            return store.value
        return None

    def store(
        self, name: str, index: sympy.Expr, value: int, nest: Nest, mode: str | None
    ) -> None:
        memory = self.memory(name)
        if memory in self.stores:
            raise Unsupported(f"{memory} is written twice in one kernel")
        self.extent(name)
        self.stores[memory] = Store(name, index, value, nest, mode)

    # -- the result --------------------------------------------------------------------------------------------

    def finish(self, removed: Collection[str]) -> tuple[LoopProgram, tuple[str, ...]]:
        """The program without stores to `removed` buffers, and the memory behind each of its arguments in order."""
        kept = {memory: s for memory, s in self.stores.items() if s.buffer not in removed}
        stores, checks, values, loaded = self._live(tuple(kept.values()))
        reads = [memory for memory in self.reads if memory in loaded]
        inputs = {memory: f"in_ptr{k}" for k, memory in enumerate(reads)}
        outputs = {memory: f"out_ptr{k}" for k, memory in enumerate(kept)}
        memories = {memory: k for k, memory in enumerate(dict.fromkeys((*reads, *kept)))}
        values = tuple(_renamed(value, inputs) for value in values)
        program = LoopProgram(
            inputs=tuple(
                Buffer(
                    inputs[m],
                    self._dtype(self.reads[m]),
                    self.extent(self.reads[m]),
                    memories[m],
                    m in kept,
                )
                for m in reads
            ),
            outputs=tuple(
                Buffer(
                    outputs[m],
                    self._dtype(s.buffer),
                    self.extent(s.buffer),
                    memories[m],
                    m in inputs,
                )
                for m, s in kept.items()
            ),
            values=values,
            stores=tuple(
                Store(outputs[m], s.index, s.value, s.nest, s.mode)
                for m, s in zip(kept, stores)
            ),
            checks=checks,
            row=self.row,
        )
        return program, (*reads, *kept)

    def _dtype(self, name: str) -> str:
        return str(V.graph.get_dtype(name)).removeprefix("torch.")

    def _live(
        self, stores: Sequence[Store]
    ) -> tuple[list[Store], tuple[Check, ...], tuple[Value, ...], set[str]]:
        """Stores, checks and values renumbered without dead values, and the buffers that are loaded."""
        used: set[int] = set()

        def visit(position: int) -> None:
            if position not in used:
                used.add(position)
                for operand in self.values[position].operands:
                    visit(operand)

        for store in stores:
            visit(store.value)
            for symbol in store.index.free_symbols & self.indirect.keys():
                visit(self.indirect[symbol])
        for check in self.checks:
            visit(check.condition)
        order = {old: new for new, old in enumerate(sorted(used))}
        symbols = {
            sympy.Symbol(f"j{old}", integer=True, nonnegative=True): sympy.Symbol(
                f"j{order[old]}", integer=True, nonnegative=True
            )
            for old in self.indirect.values()
            if old in order
        }
        values = tuple(_renumbered(self.values[old], order, symbols) for old in order)
        loaded = {v.attribute.buffer for v in values if isinstance(v.attribute, Load)}
        return (
            [
                Store(s.buffer, s.index.xreplace(symbols), order[s.value], s.nest, s.mode)
                for s in stores
            ],
            tuple(Check(order[c.condition], c.error, c.message) for c in self.checks),
            values,
            loaded,
        )


def _axis_names(index: sympy.Expr) -> set[str]:
    return {s.name for s in index.free_symbols if s.name.startswith("x")}


def _renumbered(
    value: Value, order: dict[int, int], symbols: dict[sympy.Symbol, sympy.Symbol]
) -> Value:
    attribute = value.attribute
    if isinstance(attribute, Load):
        attribute = Load(attribute.buffer, attribute.index.xreplace(symbols), attribute.coordinates)
    elif isinstance(attribute, sympy.Expr):
        attribute = attribute.xreplace(symbols)
    operands = tuple(order[operand] for operand in value.operands)
    return Value(value.operation, value.dtype, operands, attribute, value.axes)


def _renamed(value: Value, names: dict[str, str]) -> Value:
    if not isinstance(value.attribute, Load):
        return value
    load = Load(names[value.attribute.buffer], value.attribute.index, value.attribute.coordinates)
    return Value(value.operation, value.dtype, value.operands, load, value.axes)
