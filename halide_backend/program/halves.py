"""Halves of an axis that change places: one load of both where a program has one of each, under masks.

A rotary embedding multiplies by `cat((-x[..., n/2:], x[..., :n/2]))`: an element of x + n/2 where x < n/2 and of x -
n/2 elsewhere, which are elements of (x + n/2) % n. Without masks they are moved in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import sympy

from halide_backend.program.index import AxisSymbol, Mod, expanded
from halide_backend.program.loop_program import Load, LoopProgram, Number, Value
from halide_backend.program.short_reductions import without_unused

#: Comparison of a coordinate with the middle of its axis -> whether it is true of the first half.
_HALVES = {"lt": True, "ge": False}


@dataclass(frozen=True)
class _Half:
    """A load of `buffer` during a half of `axis`, which has 2 `middle` elements."""

    buffer: str
    dtype: str
    axis: str
    middle: int
    index: sympy.Expr


def with_joined_halves(program: LoopProgram) -> LoopProgram:
    """`program` with one load for two of the same memory, of which each has the other half of an axis than its own."""
    extents = {axis.name: axis.extent for axis in program.axes}
    firsts: dict[_Half, int] = {}
    seconds: dict[_Half, int] = {}
    for position, value in enumerate(program.values):
        if (found := _half(program, value, extents)) is not None:
            half, is_first = found
            (firsts if is_first else seconds).setdefault(half, position)
    joined: dict[int, Value] = {}
    moved: dict[int, int] = {}
    for half, position in firsts.items():
        symbol = AxisSymbol(half.axis)
        step = half.index.coeff(symbol)
        other = seconds.get(replace(half, index=expanded(half.index - 2 * half.middle * step)))
        if other is None or not step.is_Integer or expanded(half.index - step * symbol).has(symbol):
            continue
        turned = Mod(symbol + half.middle, sympy.Integer(2 * half.middle))
        index = expanded(half.index - step * (symbol + half.middle)) + step * turned
        place = min(position, other)
        joined[place] = Value.of("load", half.dtype, (), Load(half.buffer, index), ())
        moved[max(position, other)] = place
    if not joined:
        return program
    values = (joined.get(k, value) for k, value in enumerate(program.values))
    taken = tuple(replace(value, operands=tuple(moved.get(o, o) for o in value.operands)) for value in values)
    return without_unused(replace(program, values=taken))


def _half(program: LoopProgram, value: Value, extents: Mapping[str, object]) -> tuple[_Half, bool] | None:
    """What `value` loads, if that is under the mask of a half alone, and whether it is the first half."""
    if not isinstance(load := value.attribute, Load) or len(value.operands) != 1:
        return None
    mask = program.values[value.operands[0]]
    if mask.operation not in _HALVES:
        return None
    coordinate, middle = (program.values[operand] for operand in mask.operands)
    axis, number = coordinate.attribute, middle.attribute
    if not isinstance(axis, AxisSymbol) or not isinstance(number, Number) or extents.get(axis.name) != 2 * number.value:
        return None
    half = _Half(load.buffer, value.dtype, axis.name, int(number.value), expanded(load.index))
    return half, _HALVES[mask.operation]
