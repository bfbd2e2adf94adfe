"""Remainders of coordinates that run around a dimension once, as those of a rolled picture: a comparison says whether
a coordinate is beyond its end. A vector of remainders by a computed divisor takes some twenty instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy

from halide_backend.program.index import AxisSymbol, Mod, Select, expanded
from halide_backend.program.loop_program import Extent, Load, LoopProgram


def with_wrapped_coordinates(program: LoopProgram) -> LoopProgram:
    """`program` with choices for such remainders in the indices of loads."""
    extents: dict[sympy.Basic, Extent] = {axis.symbol: axis.extent for axis in program.axes}
    values = []
    for value in program.values:
        load = value.attribute
        if isinstance(load, Load) and load.index.has(Mod):
            choices = {remainder: _choice(remainder, extents) for remainder in load.index.atoms(Mod)}
            value = replace(value, attribute=replace(load, index=load.index.xreplace(choices)))
        values.append(value)
    return replace(program, values=tuple(values))


def _choice(remainder: Mod, extents: Mapping[sympy.Basic, Extent]) -> sympy.Expr:
    """`remainder` without a division if it is that of a coordinate plus a number, both less than the divisor."""
    whole, part = remainder.args
    axes = [symbol for symbol in whole.free_symbols if isinstance(symbol, AxisSymbol)]
    if part.is_Integer or len(axes) != 1 or extents.get(axes[0]) != part:
        return remainder
    shift = expanded(whole - axes[0])
    if not isinstance(shift, Mod) or shift.args[1] != part or shift.has(axes[0]):
        return remainder
    return Select(sympy.Lt(whole, part), whole, expanded(whole - part))
