"""Axes that run over something several times, as those of a repeated tensor do: an axis of the repeats around one of
what is repeated. Elements are read in vectors then, where quotients and remainders are computed for each of them.
"""

from __future__ import annotations

from dataclasses import replace

import sympy

from halide_backend.program.index import AxisSymbol, FloorDiv, Mod, expanded
from halide_backend.program.loop_program import Axis, Extent, Load, LoopProgram, Nest, Number, Store, Value

#: Least elements of what is repeated: fewer are no vector of a register.
_LEAST = 16


def with_repeats_apart(program: LoopProgram) -> LoopProgram:
    """`program`, if it is pointwise, with two axes in place of each of which values take remainders by a number that
    divides its extent."""
    if program.checks or not all(map(_is_plain, program.values)) or any(store.mode for store in program.stores):
        return program
    lengths = {axis.name: length for axis in program.axes if (length := _length(program, axis)) is not None}
    return _Cut(program, lengths).program() if lengths else program


def _is_plain(value: Value) -> bool:
    """Whether a value is of one point, and the index of a load is in range everywhere."""
    match value.attribute:
        case Load(coordinates=coordinates, inside=inside):
            return not coordinates and inside is None
        case None | Number() | sympy.Expr():
            return True
        case _:
            return False


def _indices(program: LoopProgram) -> list[sympy.Expr]:
    attributes = [value.attribute for value in program.values]
    return [
        each.index if isinstance(each, Load) else each for each in attributes if isinstance(each, Load | sympy.Expr)
    ]


def _length(program: LoopProgram, axis: Axis) -> Extent | None:
    """The elements that are repeated along `axis`, if some are: all else is linear along it."""
    indices = [index for index in _indices(program) if index.has(axis.symbol)]
    parts = {part for index in indices for part in index.atoms(Mod, FloorDiv) if part.args[0] == axis.symbol}
    lengths = {part.args[1] for part in parts}
    if len(lengths) != 1 or not any(isinstance(part, Mod) for part in parts):
        return None
    (length,) = lengths
    others = [expanded(index.xreplace(dict.fromkeys(parts, sympy.Integer(0)))) for index in indices]
    linear = all(not expanded(index - index.coeff(axis.symbol) * axis.symbol).has(axis.symbol) for index in others)
    repeats = sympy.cancel(sympy.sympify(axis.extent) / length)
    typical = program.typical(length)
    if not (linear and repeats.is_Integer and repeats > 1 and typical is not None and typical >= _LEAST):
        return None
    # The stride of the repeats: a number, or a size that the kernel's caller passes.
    known = {size.value for size in program.sizes}
    strides = [expanded(expanded(store.index).coeff(axis.symbol) * length) for store in program.stores]
    if not all(stride.is_Integer or stride in known for stride in strides):
        return None
    return int(length) if length.is_Integer else length


class _Cut:
    """The axes of a program in their order, some of them cut into repeats around what has the `lengths`."""

    def __init__(self, program: LoopProgram, lengths: dict[str, Extent]) -> None:
        self._program, self._axes = program, dict[str, tuple[Axis, ...]]()
        self._places: dict[sympy.Basic, sympy.Expr] = {}
        number = 0
        for axis in sorted(program.axes, key=lambda axis: int(axis.name[1:])):
            length = lengths.get(axis.name)
            if length is None:
                self._axes[axis.name] = (replace(axis, name=f"x{number}"),)
                self._places[axis.symbol] = AxisSymbol(f"x{number}")
            else:
                repeats, hint = int(sympy.cancel(sympy.sympify(axis.extent) / length)), program.typical(length)
                assert hint is not None
                outer, inner = Axis(f"x{number}", repeats, repeats), Axis(f"x{number + 1}", length, hint)
                self._axes[axis.name] = (outer, inner)
                self._places[axis.symbol] = length * outer.symbol + inner.symbol
                self._places[Mod(axis.symbol, sympy.sympify(length))] = inner.symbol
                self._places[FloorDiv(axis.symbol, sympy.sympify(length))] = outer.symbol
            number += len(self._axes[axis.name])

    def program(self) -> LoopProgram:
        values: list[Value] = []
        for each in self._program.values:
            attribute = each.attribute
            if isinstance(attribute, Load):
                attribute = replace(attribute, index=self._index(attribute.index))
            elif isinstance(attribute, sympy.Expr):
                attribute = self._index(attribute)
            values.append(Value.of(each.operation, each.dtype, each.operands, attribute, values))
        stores = tuple(map(self._store, self._program.stores))
        return replace(self._program, values=tuple(values), stores=stores, outer=self._cut(self._program.outer))

    def _index(self, index: sympy.Expr) -> sympy.Expr:
        return expanded(index.xreplace(self._places))

    def _store(self, store: Store) -> Store:
        return replace(store, index=self._index(store.index), nest=Nest(self._cut(store.nest.iteration)))

    def _cut(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(part for axis in axes for part in self._axes[axis.name])
