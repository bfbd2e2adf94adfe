"""Producers read at other coordinates, inlined: each `Apply` becomes a copy of its operand's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy

from halide_backend.errors import Unsupported
from halide_backend.program.index import AxisSymbol, ValueSymbol, axes_of
from halide_backend.program.loop_program import Apply, Load, LoopProgram, Reduction, Scan, Store, Value

#: Where the axes of a producer are read: axis name -> index expression.
_Places = tuple[tuple[str, sympy.Expr], ...]


def without_applications(program: LoopProgram) -> LoopProgram:
    """`program` with every producer computed again at each place where it is read: equal values, more of them.

    Raises:
        Unsupported: a reduction or a scan is read at places that move along its own axis.
    """
    if not any(isinstance(value.attribute, Apply) for value in program.values):
        return program
    copies = _Copies(program)
    found = [copies.of(position, ()) for position in range(len(program.values))]
    return replace(
        program,
        values=tuple(copies.values),
        stores=tuple(_moved(store, found) for store in program.stores),
        checks=tuple(replace(check, condition=found[check.condition]) for check in program.checks),
    )


def _moved(store: Store, found: list[int]) -> Store:
    symbols = {ValueSymbol.of(old): ValueSymbol.of(new) for old, new in enumerate(found)}
    return replace(store, value=found[store.value], index=store.index.xreplace(symbols))


class _Copies:
    def __init__(self, program: LoopProgram) -> None:
        self.values: list[Value] = []
        self._source = program.values
        self._positions: dict[Value, int] = {}
        self._known: dict[tuple[int, _Places], int] = {}

    def of(self, position: int, places: _Places) -> int:
        """Position of the copy of a value at `places`; without them, of the value itself."""
        for needed in self._behind(position):
            key = needed, self._own(needed, places)
            if key not in self._known:
                self._known[key] = self._copy(needed, key[1])
        return self._known[position, self._own(position, places)]

    def _own(self, position: int, places: _Places) -> _Places:
        axes = self._source[position].axes
        return tuple((axis, index) for axis, index in places if axis in axes)

    def _behind(self, position: int) -> list[int]:
        """What the value is made of, but not behind another application, and the value itself; producers first."""
        seen: set[int] = set()
        stack = [position]
        while stack:
            current = stack.pop()
            if current not in seen:
                seen.add(current)
                operands = self._source[current].operands
                stack += operands[isinstance(self._source[current].attribute, Apply) :]
        return sorted(seen)

    def _copy(self, position: int, places: _Places) -> int:
        value = self._source[position]
        moved: dict[sympy.Symbol, sympy.Expr] = {AxisSymbol(axis): index for axis, index in places}
        applied = isinstance(value.attribute, Apply)
        old = value.operands[applied:]
        operands = tuple(self._known[operand, self._own(operand, places)] for operand in old)
        symbols = moved | {ValueSymbol.of(before): ValueSymbol.of(after) for before, after in zip(old, operands)}
        if isinstance(value.attribute, Apply):
            at = {axis: index.xreplace(symbols) for axis, index in value.attribute.at}
            return self.of(value.operands[0], tuple(sorted((dict(places) | at).items())))
        attribute = _attribute(value.attribute, symbols, dict(places))
        copy = Value.of(value.operation, value.dtype, operands, attribute, self.values)
        if copy not in self._positions:
            self._positions[copy] = len(self.values)
            self.values.append(copy)
        return self._positions[copy]


def _attribute(
    attribute: object, symbols: Mapping[sympy.Symbol, sympy.Expr], places: Mapping[str, sympy.Expr]
) -> object:
    match attribute:
        case Load():
            coordinates = tuple(replace(c, index=c.index.xreplace(symbols)) for c in attribute.coordinates)
            return replace(attribute, index=attribute.index.xreplace(symbols), coordinates=coordinates, inside=None)
        case Reduction() | Scan():
            own = {axis.name for axis in attribute.axes}
            if own & (places.keys() | {name for index in places.values() for name in axes_of(index)}):
                raise Unsupported(
                    "applied-along-reduced-axis", f"{attribute} is applied at {places}, which move along its own axis"
                )
            if isinstance(attribute, Reduction) and attribute.position is not None:
                return replace(attribute, position=attribute.position.xreplace(symbols))
        case sympy.Expr():
            return attribute.xreplace(symbols)
    return attribute
