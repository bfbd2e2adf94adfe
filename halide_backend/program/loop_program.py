"""LoopProgram: what one fused group of Inductor nodes computes, as frozen data.

It is a directed acyclic graph of `Value`s over named loop axes. A value is a pure function of the axes that occur in
it; a reduction value removes axes; a `Store` writes a value to memory, once for every point of its `Nest`. Nothing
here says in which order anything is computed: that is the schedule's business.

`capture/` builds it, `codegen/` writes it down as Halide. It imports neither torch nor halide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import sympy

from halide_backend.program.index import AxisSymbol, axes_of
from halide_backend.program.index_syntax import print_index

#: Name of a torch dtype without the "torch." prefix, for example "float32".
DType = str

#: A number of elements: known when compiling, or an expression over the program's size symbols.
Extent: TypeAlias = int | sympy.Expr


@dataclass(frozen=True)
class Axis:
    """One loop: `name` is the symbol that index expressions use, `extent` its number of steps.

    Axes are identified across the nests of a program: two nests that carry the same name step through the same
    coordinates, so a value that depends on that axis means the same in both. `hint` is a typical extent: it may
    decide what is fast, never what is right.
    """

    name: str
    extent: Extent
    hint: int

    @property
    def symbol(self) -> AxisSymbol:
        """The symbol that stands for its coordinate in index expressions."""
        return AxisSymbol(self.name)

    def __str__(self) -> str:
        return f"{self.name}<{self.extent}"


@dataclass(frozen=True)
class Nest:
    """A loop nest, outermost axis first: `iteration` axes, then the `reduction` axes inside them."""

    iteration: tuple[Axis, ...]
    reduction: tuple[Axis, ...] = ()

    @property
    def axes(self) -> tuple[Axis, ...]:
        return self.iteration + self.reduction

    def __str__(self) -> str:
        text = ", ".join(map(str, self.iteration))
        return f"({text}) reduce ({', '.join(map(str, self.reduction))})" if self.reduction else f"({text})"


@dataclass(frozen=True)
class Buffer:
    """A tensor argument as flat memory.

    `name` is the kernel's own name for it (`in_ptr0`, `out_ptr1`), `extent` the number of elements between the data
    pointer and the last element that the tensor's sizes and strides reach. `memory` numbers the memory
    behind it: an input and an output with the same number are two Halide buffers over one pointer, and `mutated` is
    set on both. `aligned` says that its memory begins at a multiple of 16 bytes whenever the kernel is called.
    """

    name: str
    dtype: DType
    extent: Extent
    memory: int
    mutated: bool = False
    aligned: bool = False


@dataclass(frozen=True)
class Coordinate:
    """One dimension of a masked load: `index` runs along it, `extent` and `stride` (in elements) bound it.

    The loops alone keep it in range where `extent` is 0.
    """

    index: sympy.Expr
    extent: Extent
    stride: Extent


@dataclass(frozen=True)
class Steps:
    """The steps from `first` to before `end` of the loop along `axis`."""

    axis: str
    first: Extent
    end: Extent


@dataclass(frozen=True)
class Piece:
    """An index that holds at `steps` of a loop."""

    steps: Steps
    index: sympy.Expr


@dataclass(frozen=True)
class Load:
    """Attributes of a "load" value.

    `index` is the flat element index, over axis symbols and `indirect` symbols. `coordinates` repeats it dimension
    by dimension where a mask may let it run out of range, so that each dimension can be clamped on its own, and where
    strides are sizes `inside` are steps of a loop during which the index is in range whatever the mask is. `main` is a
    linear piece of the index during most steps of a loop, in programs that are prepared for a CPU (`main_pieces.py`).
    """

    buffer: str
    index: sympy.Expr
    coordinates: tuple[Coordinate, ...] = ()
    inside: Steps | None = None
    main: Piece | None = None


@dataclass(frozen=True)
class Reduction:
    """Attributes of a "reduction" value: `kind` (sum, prod, max, min, any, xor_sum, argmax, argmin; in a
    prepared program also those of `program/moments.py`) over `axes`.

    For argmax and argmin `position` is the flat position among the reduced elements, in logical order.
    """

    kind: str
    axes: tuple[Axis, ...]
    position: sympy.Expr | None = None


@dataclass(frozen=True)
class Combination:
    """How two partial results of a scan become one: an associative function of two tuples of n components.

    `program` has no memory. Its "earlier" and "later" values stand for the components, by the numbers in their
    attributes; `results` are the positions of the n values that the function returns.
    """

    program: LoopProgram
    results: tuple[int, ...]

    def __str__(self) -> str:
        values = (f"{value.operation}{list(value.operands) or value.attribute}" for value in self.program.values)
        return f"by {', '.join(values)} -> {list(self.results)}"


@dataclass(frozen=True)
class Scan:
    """Attributes of a "scan" value: of its operands, all that come no later along `axes` (outermost first), combined.

    The operands are the components of one element; the value is component `result`.
    """

    axes: tuple[Axis, ...]
    combination: Combination
    result: int

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.axes))}) {self.combination} component {self.result}"


@dataclass(frozen=True)
class Number:
    """Attributes of a "constant". It compares by its bits: 0.0 and -0.0, 1 and True are different values."""

    value: float | int | bool
    bits: str

    @staticmethod
    def of(value: float | int | bool) -> Number:
        """NaN, which is not equal to itself, is held by its bits alone."""
        return Number(0 if value != value else value, repr(value))


@dataclass(frozen=True)
class Indirect:
    """Attributes of an "indirect" value: an index read from data, wrapped if negative, clamped to [0, size)."""

    size: Extent
    wrap_negative: bool


@dataclass(frozen=True)
class Apply:
    """Attributes of an "apply" value: its first operand, a function of axes, at other coordinates than its own.

    `at` has pairs of an axis and the index expression that takes its place, by the axis's name; the further operands
    are the values in these expressions. The function's domain along such an axis is whatever the expressions reach,
    also beyond the axis's own extent; its loads have to be in range there, as those of every value.
    """

    at: tuple[tuple[str, sympy.Expr], ...]


@dataclass(frozen=True)
class Value:
    """One operation. `operands` are positions in `LoopProgram.values`, always smaller than the value's own.

    `attribute` is what the operation needs besides values: a `Load`, `Reduction`, `Scan`, `Apply`, `Indirect` or
    `Number`, or the index expression of an "index".
    """

    operation: str
    dtype: DType
    operands: tuple[int, ...] = ()
    attribute: object = None
    axes: frozenset[str] = field(default=frozenset(), compare=False)

    @staticmethod
    def of(
        operation: str, dtype: DType, operands: tuple[int, ...], attribute: object, values: Sequence[Value]
    ) -> Value:
        """The value with the axes it depends on; `values` are those before it."""
        of = [values[operand].axes for operand in operands]
        axes: set[str] = set().union(*of)
        match attribute:
            case Load(index=index):
                axes |= axes_of(index)
            case sympy.Expr():
                axes |= axes_of(attribute)
            case Reduction(axes=reduced):
                axes -= {axis.name for axis in reduced}
            case Scan(axes=scanned):
                axes |= {axis.name for axis in scanned}
            case Apply(at=at):
                axes = set(of[0] - {axis for axis, _ in at}).union(*of[1:], *(axes_of(index) for _, index in at))
        return Value(operation, dtype, operands, attribute, frozenset(axes))


@dataclass(frozen=True)
class Store:
    """Writes `value` to `buffer[index]` at every point of `nest`; `mode` is None or "atomic_add".

    `distinct` is set where no two points share an element although the strides alone do not say so: what is known of
    the sizes does, for example that rows have 32 elements or more.
    """

    buffer: str
    index: sympy.Expr
    value: int
    nest: Nest
    mode: str | None = None
    distinct: bool = False


@dataclass(frozen=True)
class Check:
    """A condition (a bool value, true where something is wrong) that turns into a Python exception after the run."""

    condition: int
    error: str
    message: str


@dataclass(frozen=True)
class Size:
    """A number that is known only when the kernel is called.

    `value` is what it stands for in the program's expressions: the symbol `name` itself, or a stride or an extent
    over other sizes. Halide takes a stride only as a plain parameter, and an extent has to fit into int32, which the
    launcher checks. A number of which nothing but values are made is `data`: it has 64 bits, and may be negative.
    `hint` is typical of a symbol that is not data, as an axis has one; None if it is not known.
    """

    name: str
    value: sympy.Expr
    data: bool = False
    hint: int | None = None


@dataclass(frozen=True)
class LoopProgram:
    """A whole kernel.

    `outer` holds the axes that are outermost and common to all nests: the level at which stages can be shared. It is
    found from the index expressions, never from a position or an equal extent.
    """

    inputs: tuple[Buffer, ...]
    sizes: tuple[Size, ...]
    outputs: tuple[Buffer, ...]
    values: tuple[Value, ...]
    stores: tuple[Store, ...]
    checks: tuple[Check, ...]
    outer: tuple[Axis, ...]

    def typical(self, extent: Extent) -> int | None:
        """`extent` as a number, a typical one if it depends on sizes; None if the program does not say what that is."""
        if isinstance(extent, int):
            return extent
        hints = {axis.extent: axis.hint for axis in self.axes if not isinstance(axis.extent, int)}
        symbols = {symbol: hint for symbol, hint in hints.items() if symbol.is_Symbol}
        symbols |= {size.value: size.hint for size in self.sizes if size.hint is not None}
        found = sympy.sympify(hints.get(extent, extent.subs(symbols)))
        return int(found) if found.is_Integer else None

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Every axis of every nest, in order of first appearance."""
        found: dict[str, Axis] = {}
        for store in self.stores:
            for axis in store.nest.axes:
                found.setdefault(axis.name, axis)
        for value in self.values:
            if isinstance(value.attribute, Reduction | Scan):
                for axis in value.attribute.axes:
                    found.setdefault(axis.name, axis)
        return tuple(found.values())

    def __str__(self) -> str:
        lines = [f"outer ({', '.join(map(str, self.outer))})"]
        lines += [f"in  {b.name}: {b.dtype}[{b.extent}]{' mutated' * b.mutated}" for b in self.inputs]
        lines += [f"size {size.name}: {size.value}" for size in self.sizes]
        lines += [f"out {b.name}: {b.dtype}[{b.extent}]{' mutated' * b.mutated}" for b in self.outputs]
        for position, value in enumerate(self.values):
            operands = "".join(f" v{operand}" for operand in value.operands)
            attribute = "" if value.attribute is None else f" {_attribute_text(value.attribute)}"
            lines.append(f"v{position} = {value.operation}{operands}{attribute} : {value.dtype}")
        for store in self.stores:
            mode = f" {store.mode}" if store.mode else ""
            lines.append(f"{store.buffer}[{print_index(store.index)}] <-{mode} v{store.value} for {store.nest}")
        lines += [f"check v{c.condition}: {c.error} {c.message}" for c in self.checks]
        return "\n".join(lines)


def _attribute_text(attribute: object) -> str:
    match attribute:
        case Load():
            inside = [f"0 <= {print_index(c.index)} < {c.extent}" for c in attribute.coordinates if c.extent != 0]
            if attribute.inside:
                inside.append(f"{attribute.inside.first} <= {attribute.inside.axis} < {attribute.inside.end}")
            return f"{attribute.buffer}[{print_index(attribute.index)}]{' if ' * bool(inside)}{' and '.join(inside)}"
        case Reduction():
            position = "" if attribute.position is None else f" position {print_index(attribute.position)}"
            return f"{attribute.kind} over ({', '.join(map(str, attribute.axes))}){position}"
        case Apply():
            return f"at ({', '.join(f'{axis} = {print_index(index)}' for axis, index in attribute.at)})"
        case Number():
            return attribute.bits
        case Indirect():
            return f"in [{-attribute.size if attribute.wrap_negative else 0}, {attribute.size})"
        case sympy.Expr():
            return print_index(attribute)
    return str(attribute)
