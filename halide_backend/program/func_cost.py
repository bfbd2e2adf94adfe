"""What the definition of one Func contains: the Funcs it calls, its arithmetic, the memory it touches."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import sympy

from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol, ValueSymbol, expanded
from halide_backend.program.loop_program import Axis, Load, LoopProgram, Value
from halide_backend.program.operation_names import MATHEMATICS

#: Rough cost of one operation next to an addition; only ratios matter (see docs/design/schedules/constants.md).
_WORK = dict.fromkeys(MATHEMATICS, 20) | dict.fromkeys(("truediv", "sqrt", "rsqrt", "reciprocal"), 4)

#: Bytes of half a line of a cache: of steps that are as long, each takes a line, or nearly.
_STEP = 32

#: Functions with a branch for arguments of a rare range (build/llvm/rare_ranges.py).
_BRANCHING = frozenset({"cos", "sin", "tan"})


@dataclass
class Definition:
    """`calls` in the order in which they are met, `work` in additions for one point, and bytes of memory: `traffic`
    in all, `contiguous` those with stride 1 along each axis, `runs` those where a step along a second axis is as long
    as all of a first one with stride 1, by both: one run of memory. `across` are the bytes, for each point of the Func,
    whose place depends on an axis, but not with stride 1. `cases` says that a load is masked, or its index one in
    pieces, `branches` that a function has a branch for arguments of a rare range; `gathered` are the axes along which a
    load is contiguous whose index is data, `looked_up` says how many numbers, which are data and differ along an axis,
    the indices of loads are made of, `strided` are the axes along which one has a stride that is neither 0 nor 1;
    `lines` are the bytes of loads that take a line of memory, or nearly, for each step along a first axis, of which
    steps along a second one take other elements, by both; `overlaps` says how many loads take, one step earlier
    along an axis, what another one takes."""

    calls: dict[str, None] = field(default_factory=dict)
    work: int = 1
    contiguous: dict[str, int] = field(default_factory=dict)
    traffic: int = 0
    runs: dict[tuple[str, str], int] = field(default_factory=dict)
    across: dict[str, int] = field(default_factory=dict)
    cases: bool = False
    gathered: dict[str, None] = field(default_factory=dict)
    looked_up: dict[str, int] = field(default_factory=dict)
    strided: dict[str, None] = field(default_factory=dict)
    lines: dict[tuple[str, str], int] = field(default_factory=dict)
    branches: bool = False
    overlaps: dict[str, int] = field(default_factory=dict)


def define(
    program: LoopProgram, roots: Iterable[int], funcs: Mapping[int, str], loads: Mapping[int, str] | None = None
) -> Definition:
    """The definition of a Func that is made of the values `roots`; `funcs` says which values are Funcs, `loads` which
    loads take their elements from one."""
    found = Definition()
    axes = {axis.name: axis for axis in program.axes}
    seen: set[int] = set()
    indices: set[tuple[str, sympy.Expr]] = set()
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
        found.branches |= value.operation in _BRANCHING
        if isinstance(value.attribute, Load):
            _count_load(found, program, value, value.attribute, axes)
            indices.add((value.attribute.buffer, expanded(value.attribute.index)))
        stack += value.operands
    if len(indices) > 1:
        found.overlaps = {axis: count for axis in axes if (count := _taken_again(indices, AxisSymbol(axis)))}
    return found


def _taken_again(indices: Collection[tuple[str, sympy.Expr]], axis: sympy.Symbol) -> int:
    """How many of the loads at `indices` take, one step of `axis` earlier, what another one takes."""
    later = ((buffer, index.subs(axis, axis + 1)) for buffer, index in indices if axis in index.free_symbols)
    return sum((buffer, expanded(index)) in indices for buffer, index in later)


def _count_load(found: Definition, program: LoopProgram, value: Value, load: Load, axes: Mapping[str, Axis]) -> None:
    buffer = next(b for b in program.inputs if b.name == load.buffer)
    element = ELEMENT[buffer.dtype][1] // 8
    size = element * math.prod(axes[name].hint for name in value.axes)
    found.traffic += size
    found.cases |= bool(load.main) or any(program.values[operand].dtype == "bool" for operand in value.operands)
    index = expanded(load.index)
    steps = {symbol.name: index.coeff(symbol) for symbol in index.free_symbols if symbol.name in value.axes}
    gathers = any(program.values[operand].operation == "indirect" for operand in value.operands)
    for name in (name for name in value.axes if steps.get(name) != 1):
        found.across[name] = found.across.get(name, 0) + element
        if steps.get(name, 0) != 0:
            found.strided[name] = None
    for symbol in (symbol for symbol in index.free_symbols if isinstance(symbol, ValueSymbol)):
        for name in program.values[symbol.position].axes:
            found.looked_up[name] = found.looked_up.get(name, 0) + 1
    bytes_of = {symbol: abs(coefficient) * element for symbol, coefficient in index.as_coefficients_dict().items()}
    near = {symbol for symbol, step in bytes_of.items() if step.is_number and 0 < step < _STEP}
    far = {symbol.name for symbol in index.free_symbols if symbol.name in value.axes and symbol not in near}
    beside = {symbol.name for symbol in near if getattr(symbol, "name", "") in value.axes}
    for symbol in near:
        if isinstance(symbol, ValueSymbol):
            beside |= program.values[symbol.position].axes
    for name in far:
        for other in beside - far:
            found.lines[name, other] = found.lines.get((name, other), 0) + size
    for name in (name for name, step in steps.items() if step == 1):
        if gathers:
            found.gathered[name] = None
        found.contiguous[name] = found.contiguous.get(name, 0) + size
        for other in (other for other, step in steps.items() if other != name and step == axes[name].extent):
            found.runs[name, other] = found.runs.get((name, other), 0) + size
