"""What the definition of one Func contains: the Funcs it calls, its arithmetic, the memory it touches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import sympy

from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Load, LoopProgram, Value
from halide_backend.program.operation_names import MATHEMATICS

#: Rough cost of one operation next to an addition; only ratios matter (see docs/design/schedules.md).
_WORK = dict.fromkeys(MATHEMATICS, 20) | dict.fromkeys(("truediv", "sqrt", "rsqrt", "reciprocal"), 4)


@dataclass
class Definition:
    """`calls` in the order in which they are met, `work` in additions for one point, and bytes of memory: `traffic`
    in all, `contiguous` those with stride 1 along each axis."""

    calls: dict[str, None] = field(default_factory=dict)
    work: int = 1
    contiguous: dict[str, int] = field(default_factory=dict)
    traffic: int = 0


def define(
    program: LoopProgram, roots: Iterable[int], funcs: Mapping[int, str], loads: Mapping[int, str] | None = None
) -> Definition:
    """The definition of a Func that is made of the values `roots`; `funcs` says which values are Funcs, `loads` which
    loads take their elements from one."""
    found = Definition()
    hints = {axis.name: axis.hint for axis in program.axes}
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        position = stack.pop()
        if position in seen:
            continue
        seen.add(position)
        if position in funcs:
            found.calls[funcs[position]] = None
            continue
        if loads and position in loads:
            found.calls[loads[position]] = None
        value = program.values[position]
        found.work += _WORK.get(value.operation, 1)
        if isinstance(value.attribute, Load):
            _count_load(found, program, value, value.attribute, hints)
        stack += value.operands
    return found


def _count_load(found: Definition, program: LoopProgram, value: Value, load: Load, hints: Mapping[str, int]) -> None:
    buffer = next(b for b in program.inputs if b.name == load.buffer)
    size = ELEMENT[buffer.dtype][1] // 8
    for name in value.axes:
        size *= hints[name]
    found.traffic += size
    index = sympy.expand(load.index)
    for symbol in index.free_symbols:
        if symbol.name in value.axes and index.coeff(symbol) == 1:
            found.contiguous[symbol.name] = found.contiguous.get(symbol.name, 0) + size
