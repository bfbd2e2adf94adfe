"""Collects the values, stores and buffers of one fused group and freezes them into a `LoopProgram`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch._inductor.ir import MutationLayoutSHOULDREMOVE, NonOwningLayout
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Max, Min

from halide_backend.capture.canonical import canonical
from halide_backend.capture.conditions import Bound
from halide_backend.capture.sizes import MAX_ELEMENTS, extent, is_nonnegative, is_size
from halide_backend.errors import Unsupported
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol, ValueSymbol
from halide_backend.program.index_range import SMALL
from halide_backend.program.loop_program import (
    Axis,
    Buffer,
    Check,
    Extent,
    Load,
    LoopProgram,
    Nest,
    Number,
    Reduction,
    Store,
    Value,
)
from halide_backend.program.store_layout import stored_crosswise

_FLIPPED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}


@dataclass(frozen=True)
class Draft:
    """A program and what the graph calls it with: the memory behind each of its buffers, inputs first, and an
    expression over the graph's symbols for each of its sizes."""

    program: LoopProgram
    memories: tuple[str, ...]
    sizes: tuple[sympy.Expr, ...]


@dataclass
class ProgramBuilder:
    """Mutable while the nodes of a group are recorded in program order.

    Buffers go by the name of their memory in the graph: a mutated input and the buffers that stand for its later
    versions are one. `flattened` as of `canonical`.
    """

    outer: tuple[Axis, ...]
    flattened: bool = False
    values: list[Value] = field(default_factory=list)
    indirect: dict[sympy.Symbol, int] = field(default_factory=dict)
    reads: dict[str, str] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)
    checks: dict[Check, None] = field(default_factory=dict)
    _positions: dict[Value, int] = field(default_factory=dict)

    # -- values ------------------------------------------------------------------------------------------------

    def value(self, operation: str, dtype: str, operands: tuple[int, ...], attribute: object) -> int:
        """Position of the value; equal values are recorded once."""
        value = Value.of(operation, dtype, operands, attribute, self.values)
        position = self._positions.get(value)
        if position is None:
            position = self._positions[value] = len(self.values)
            self.values.append(value)
        return position

    def is_rounded(self, position: int) -> bool:
        """Whether a value is a number of its own dtype, as in memory: 16-bit floats are computed as float32."""
        value = self.values[position]
        return value.dtype not in ("bfloat16", "float16") or value.operation in ("load", "to_dtype")

    def number(self, position: int) -> float | int | None:
        """The Python number that a value is, None for anything else; looks through casts that keep it."""
        value = self.values[position]
        if value.operation == "to_dtype":
            number = self.number(value.operands[0])
            return None if number is None else _converted(number, value.dtype)
        if isinstance(value.attribute, Number):
            return math.nan if value.attribute.bits == "nan" else value.attribute.value
        if value.operation == "index" and isinstance(value.attribute, sympy.Integer):
            return _converted(int(value.attribute), value.dtype)
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
        left, right = (self.index(operand) for operand in value.operands)
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

    def index(self, position: int, lengths: Collection[Extent] = ()) -> sympy.Expr | None:
        """The index expression that a value is, None for anything else; looks through casts that keep it.

        In a narrower integer an index may have wrapped, and in a float been rounded. `lengths` are those of loops,
        which int32 holds.
        """
        value = self.values[position]
        if value.operation == "to_dtype":
            index = self.index(value.operands[0], lengths)
        elif value.operation == "index":
            index = value.attribute if isinstance(value.attribute, sympy.Expr) else None
        else:
            number = self.number(position)
            index = sympy.Integer(number) if isinstance(number, int) else None
        if index is None or value.dtype == "int64":
            return index
        return index if value.dtype == "int32" and _fits_int32(index, lengths) else None

    # -- memory ------------------------------------------------------------------------------------------------

    def layout(self, name: str) -> tuple[tuple[Extent, ...], tuple[Extent, ...]]:
        """Sizes and strides (in elements) of a buffer."""
        layout = memory_layout(name)
        return tuple(map(extent, layout.size)), tuple(map(extent, layout.stride))

    def extent(self, name: str) -> Extent:
        """Elements from the data pointer to the last one the layout reaches.

        Raises:
            Unsupported: more than Halide's int32 indices can address.
        """
        offset = extent(memory_layout(name).offset)
        sizes, strides = self.layout(name)
        reach = extent(offset + sum((n - 1) * s for n, s in zip(sizes, strides)) + 1)
        if isinstance(reach, int) and reach > MAX_ELEMENTS:
            raise Unsupported("buffer-too-large", f"a buffer of {reach} elements, more than {MAX_ELEMENTS}")
        return reach

    def read(self, name: str, index: sympy.Expr) -> str:
        """Note that `name` is read from memory, and return that memory."""
        memory = memory_of(name)
        if memory in self.stores:
            raise Unsupported(
                "read-at-other-index-than-written", f"what is written at {self.stores[memory].index} is read at {index}"
            )
        self.reads.setdefault(memory, name)
        return memory

    def stored(self, name: str, index: sympy.Expr) -> int | None:
        """The value that this group stored at `index` of buffer `name`, if it did."""
        store = self.stores.get(memory_of(name))
        if store is not None and store.index == index and store.mode is None:
            return store.value
        return None

    def store(self, name: str, index: sympy.Expr, value: int, nest: Nest, mode: str | None) -> None:
        memory = memory_of(name)
        if memory in self.stores:
            raise Unsupported(
                "buffer-written-twice", f"memory is written at {self.stores[memory].index} and at {index}"
            )
        self.extent(name)
        self.stores[memory] = Store(name, index, value, nest, mode)

    @property
    def scatters_reductions(self) -> bool:
        """Whether there are both a scatter and a reduction; a scatter shares its loops with no other store."""
        scatters = any(s.mode is not None or s.index.free_symbols & self.indirect.keys() for s in self.stores.values())
        return scatters and any(isinstance(value.attribute, Reduction) for value in self.values)

    def stored_crosswise(self, least: int) -> bool:
        """Whether there is no reduction, and two results are contiguous along different axes (`store_layout`)."""
        reduces = any(isinstance(value.attribute, Reduction) for value in self.values)
        return not reduces and bool(stored_crosswise(self.stores.values(), least))

    # -- the result --------------------------------------------------------------------------------------------

    def finish(self, removed: Collection[str]) -> Draft:
        """The program without stores to `removed` buffers, and its arguments."""
        kept = {memory: s for memory, s in self.stores.items() if s.buffer not in removed}
        order = self._live_values(kept.values())
        values = [self.values[old] for old in order]
        loaded = {value.attribute.buffer for value in values if isinstance(value.attribute, Load)}
        reads = [memory for memory in self.reads if memory in loaded]
        memories = {memory: k for k, memory in enumerate(dict.fromkeys((*reads, *kept)))}
        inputs = [
            Buffer(
                f"in_ptr{k}",
                self._dtype(self.reads[m]),
                self.extent(self.reads[m]),
                memories[m],
                m in kept,
                aligned(m),
            )
            for k, m in enumerate(reads)
        ]
        outputs = [
            Buffer(f"out_ptr{k}", self._dtype(s.buffer), self.extent(s.buffer), memories[m], m in reads, aligned(m))
            for k, (m, s) in enumerate(kept.items())
        ]
        draft = LoopProgram(
            inputs=tuple(inputs),
            sizes=(),
            outputs=tuple(outputs),
            values=tuple(values),
            stores=tuple(kept.values()),
            checks=tuple(self.checks),
            outer=self.outer,
        )
        names = {memory: buffer.name for memory, buffer in zip(reads, inputs)}
        stored = {s.buffer: buffer.name for s, buffer in zip(kept.values(), outputs)}
        program, sizes = canonical(draft, order, names, stored, flattened=self.flattened)
        return Draft(program, (*reads, *kept), sizes)

    def _dtype(self, name: str) -> str:
        return str(V.graph.get_dtype(name)).removeprefix("torch.")

    def _live_values(self, stores: Iterable[Store]) -> list[int]:
        """Positions of the values that a store or a check needs, in order."""
        used: set[int] = set()
        stack = [check.condition for check in self.checks]
        for store in stores:
            stack.append(store.value)
            stack += [self.indirect[s] for s in store.index.free_symbols & self.indirect.keys()]
        while stack:
            position = stack.pop()
            if position not in used:
                used.add(position)
                stack += self.values[position].operands
        return sorted(used)


def _fits_int32(index: sympy.Expr, lengths: Collection[Extent]) -> bool:
    """Whether int32 holds `index`: a number, a coordinate, one of `lengths`, a part of one, or the least or greatest of
    such, and a small number more or less."""
    constant, rest = index.as_coeff_Add()
    if rest == 0 or not constant.is_Integer or abs(constant) >= SMALL:
        return bool(index.is_Integer and abs(index) <= MAX_ELEMENTS)
    if isinstance(rest, Max | Min):
        # The least of a size and something else is no more than that, and a size is not negative.
        sizes = [each for each in rest.args if each.is_Symbol and is_size(each) and is_nonnegative(each)]
        limits = [each for each in rest.args if isinstance(rest, Max) or each not in sizes]
        return bool(limits) and all(_fits_int32(each, lengths) for each in limits)
    if isinstance(rest, FloorDiv) and rest.args[1].is_Integer:
        return _fits_int32(rest.args[0], lengths)
    return isinstance(rest, AxisSymbol | ValueSymbol) or rest in lengths


def _converted(number: float | int, dtype: str) -> int | None:
    """`number` in the integer type or bool `dtype`, None if that cannot hold it; of floats nobody needs to know."""
    if dtype == "bool":
        return bool(number)
    code, bits = ELEMENT[dtype]
    if "float" in dtype or not isinstance(number, int):
        return None
    least, most = (-(1 << (bits - 1)), 1 << (bits - 1)) if code == 0 else (0, 1 << bits)
    return int(number) if least <= number < most else None


def memory_of(name: str) -> str:
    """The graph's name for the memory behind buffer `name`."""
    scheduler = V.graph.scheduler
    renamed = scheduler.mutation_real_name.get(name, name) if scheduler else name
    return str(renamed)


def memory_layout(name: str) -> Any:
    """The layout of the memory behind buffer `name`."""
    layout = V.graph.get_buffer(name).get_layout()
    if isinstance(layout, MutationLayoutSHOULDREMOVE):
        # Its size is that of the view which is written, its strides are those of the memory behind.
        return layout.real_layout()
    return layout


def aligned(memory: str) -> bool:
    """Whether the memory begins at a multiple of 16 bytes: Inductor ensures that unless it is part of other memory."""
    layout = V.graph.get_buffer(memory).get_layout()
    begins = not isinstance(layout, NonOwningLayout) or layout.maybe_guard_aligned()
    return begins and memory not in V.graph.unaligned_buffers
