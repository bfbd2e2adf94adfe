"""Loads whose mask is false during most of a row: those of the ends of a wrapped row, or of a reflected one's gradient.

Their index is clamped, and falls where the row rises: a vector gathers. During most of the row what they read is not
used, so that it may be what another load reads there, which lies in memory. Halide makes a loop of its own of these
steps, of one range of them: all such loads have the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import sympy

from halide_backend.program.index import Max, Min, expanded
from halide_backend.program.loop_program import Axis, Load, LoopProgram, Number, Piece, Steps, Value
from halide_backend.program.main_pieces import LEAST_SHARE, LEAST_STEPS

_OPPOSITE = {"lt": "ge", "le": "gt", "ge": "lt", "gt": "le"}


@dataclass(frozen=True)
class _Row:
    """The steps of a row along `axis` from each of `lowest` on, up to before each of `ends`."""

    axis: Axis
    typical: Mapping[sympy.Symbol, int]
    lowest: set[sympy.Expr] = field(default_factory=set)
    ends: set[sympy.Expr] = field(default_factory=set)

    def holds(self, operation: str, left: sympy.Expr, right: sympy.Expr) -> bool:
        """Take the steps at which a comparison holds, which it has to do in the middle of a row; whether it does."""
        difference = expanded(left - right)
        slope = difference.coeff(self.axis.symbol)
        rest = expanded(difference - slope * self.axis.symbol)
        if abs(slope) != 1 or any(symbol not in self.typical for symbol in rest.free_symbols):
            return False
        # From `bound` on, or up to before it.
        rises, strict = (operation in ("ge", "gt")) == (slope == 1), operation in ("lt", "gt")
        bound = int(rises == strict) - slope * rest
        if (self.axis.hint // 2 >= int(bound.xreplace(self.typical))) != rises:
            return False
        (self.lowest if rises else self.ends).add(expanded(bound))
        return True

    def steps(self) -> Steps | None:
        """All of them, None if they are few."""
        first = max([0, *(int(each.xreplace(self.typical)) for each in self.lowest)])
        end = min([self.axis.hint, *(int(each.xreplace(self.typical)) for each in self.ends)])
        if end - first < max(LEAST_STEPS, LEAST_SHARE * self.axis.hint):
            return None
        return Steps(self.axis.name, Max(0, *self.lowest), Min(*self.ends) if self.ends else self.axis.extent)


def with_rare_masks(program: LoopProgram, along: str) -> LoopProgram:
    """`program` in which loads read what lies beside each other in memory during most of each row along axis `along`,
    where their masks are false; where sizes are known, Halide finds these steps by itself.

    Pictures have masks of rows as well, whose cases Halide would no longer tell apart: two loops alone.
    """
    axis = next((axis for axis in program.axes if axis.name == along), None)
    if axis is None or isinstance(axis.extent, int) or len(program.axes) > 2:
        return program
    typical = {size.value: size.hint for size in program.sizes if size.hint is not None and size.value.is_Symbol}
    row, values = _Row(axis, typical), program.values
    rare = {p: load for p, load, masks in _masked(program) if any(_fails(program, mask, row) for mask in masks)}
    others = {buffer: _in_line(program, buffer, rare, row) for buffer in {load.buffer for load in rare.values()}}
    steps = row.steps() if rare else None
    if steps is None or None in others.values() or any(load.main for load in rare.values()):
        return program
    pieces = {p: replace(load, main=Piece(steps, others[load.buffer])) for p, load in rare.items()}
    return replace(
        program, values=tuple(replace(v, attribute=pieces.get(p, v.attribute)) for p, v in enumerate(values))
    )


def _masked(program: LoopProgram) -> Iterator[tuple[int, Load, list[Value]]]:
    """Loads from places that are no data, and their masks."""
    for position, value in enumerate(program.values):
        operands = [program.values[operand] for operand in value.operands]
        if isinstance(value.attribute, Load) and operands and all(each.dtype == "bool" for each in operands):
            yield position, value.attribute, operands


def _parts(program: LoopProgram, mask: Value) -> Iterator[Value]:
    """What holds where `mask` does."""
    if mask.operation in ("logical_and", "bitwise_and"):
        for operand in mask.operands:
            yield from _parts(program, program.values[operand])
    else:
        yield mask


def _comparison(program: LoopProgram, part: Value) -> tuple[sympy.Expr, sympy.Expr] | None:
    sides = []
    for operand in part.operands if part.operation in _OPPOSITE else ():
        attribute = program.values[operand].attribute
        sides.append(sympy.Integer(int(attribute.value)) if isinstance(attribute, Number) else attribute)
    return (sides[0], sides[1]) if len(sides) == 2 and all(isinstance(side, sympy.Expr) for side in sides) else None


def _fails(program: LoopProgram, mask: Value, row: _Row) -> bool:
    """Whether `mask` is false in the middle of a row, whose steps are taken."""
    for part in _parts(program, mask):
        sides = _comparison(program, part)
        if sides is not None and row.holds(_OPPOSITE[part.operation], *sides):
            return True
    return False


def _in_line(program: LoopProgram, buffer: str, rare: Mapping[int, Load], row: _Row) -> sympy.Expr | None:
    """The index of another load from `buffer` that is in range in the middle of a row, and lies along it."""
    masks = {position: each for position, _, each in _masked(program)}
    for position, value in enumerate(program.values):
        load = value.attribute
        if not isinstance(load, Load) or load.buffer != buffer or position in rare:
            continue
        if load.main is not None or expanded(load.index).coeff(row.axis.symbol) != 1:
            continue
        parts = [part for mask in masks.get(position, ()) for part in _parts(program, mask)]
        sides = [_comparison(program, part) for part in parts]
        held = [s is not None and row.holds(part.operation, *s) for part, s in zip(parts, sides)]
        if (not value.operands or position in masks) and all(held):
            return load.index
    return None
