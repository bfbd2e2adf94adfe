"""Reductions of the same elements: one Func with a Tuple of values reads them once."""

from __future__ import annotations

import math

from halide_backend.program.access import is_contiguous
from halide_backend.program.dtypes import ELEMENT, NARROW_FLOATS, NUMBERED
from halide_backend.program.loop_program import Load, LoopProgram, Reduction, Value
from halide_backend.program.moments import UNROLLED
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.tiling import TilingKind

TUPLES = Knob("reductions.tuples", (False, True), "reduce the same elements to several values in one loop")

#: Reductions that need one pass on any device; argmin and argmax have a second one on a CPU.
_KINDS = frozenset({"sum", "prod", "max", "min", "any", "all"})

#: Registers of a CPU for each value of a Tuple: four vectors of accumulators, and as many operands.
_REGISTERS = 8

#: Values of a Tuple on a GPU: more of them are hardly ever reduced from the same elements.
_MOST_SUMS = 4


def tuples(program: LoopProgram, device: Cpu, choices: Choices) -> tuple[tuple[int, ...], ...]:
    """Positions of the reductions that are computed together: over the same axes, of elements that a load has in common
    and that would be loaded again, none needing another."""
    groups = _candidates(program, device.vector_registers // _REGISTERS, chained=True)
    if not groups:
        return ()
    most = device.l1_bytes // 2
    long = tuple(group for group in groups if _is_read_again(program, group[0], most))
    why = f"a second pass over columns, or over more than {most} bytes of a row, would load them again"
    return (long or tuple(groups)) if choices.flag(TUPLES, bool(long), why) else ()


def gpu_tuples(program: LoopProgram, kind: TilingKind, choices: Choices) -> tuple[tuple[int, ...], ...]:
    """The same on a GPU, where threads walk along columns, or lines, and hold nothing of them."""
    # A reduction of its own ends the kernel where a check fails: there is no status as on a CPU.
    if program.checks or kind not in (TilingKind.THREAD, TilingKind.COLUMNS, TilingKind.BLOCK):
        return ()
    groups = _candidates(program, _MOST_SUMS, places=True)
    long = any(_steps(program, group[0]) > UNROLLED for group in groups)
    why = f"a second pass over more than {UNROLLED} elements would load them again"
    return tuple(groups) if groups and choices.flag(TUPLES, long, why) else ()


def is_one_tuple(program: LoopProgram, device: Cpu) -> bool:
    """Whether all reductions of `program` are computed together, if nothing else is asked for."""
    reductions = {number for number, value in enumerate(program.values) if isinstance(value.attribute, Reduction)}
    return [set(group) for group in tuples(program, device, Choices())] == [reductions]


def _candidates(
    program: LoopProgram, most: int, *, chained: bool = False, places: bool = False
) -> list[tuple[int, ...]]:
    """Groups of two to `most` reductions that could be computed together: each two have a load in common, or
    `chained`, each one with another; arg-reductions as well if keys with their `places` are compared in one pass."""
    values = program.values
    # Those with as many reductions behind them one after another need neither each other nor, as groups, go in circles.
    behind: list[int] = []
    loads: list[frozenset[str]] = []
    open_groups: dict[object, list[list[int]]] = {}
    for position, value in enumerate(values):
        reduces = [isinstance(values[operand].attribute, Reduction) for operand in value.operands]
        behind.append(max((behind[o] + through for o, through in zip(value.operands, reduces)), default=0))
        inherited = [loads[o] for o, through in zip(value.operands, reduces) if not through]
        own = {value.attribute.buffer} if isinstance(value.attribute, Load) else set()
        loads.append(frozenset(own).union(*inherited))
        reduction = value.attribute
        if not isinstance(reduction, Reduction):
            continue
        operand = values[value.operands[0]]
        placed = places and reduction.position is not None and operand.dtype in NUMBERED
        if not (reduction.kind in _KINDS or placed):
            continue
        groups = open_groups.setdefault((reduction.axes, value.axes, operand.axes, _bits(operand), behind[-1]), [])
        for group in groups:
            common = (bool(loads[position] & loads[other]) for other in group)
            if len(group) < most and (any(common) if chained else all(common)):
                group.append(position)
                break
        else:
            groups.append([position])
    return [tuple(group) for groups in open_groups.values() for group in groups if len(group) > 1]


def _bits(value: Value) -> int:
    return 32 if value.dtype in NARROW_FLOATS else ELEMENT[value.dtype][1]


def _is_read_again(program: LoopProgram, position: int, most: int) -> bool:
    """Whether a second pass would load operands of a reduction again: across memory, as half of them lie or more, any
    does, along memory one over more than `most` bytes, of typical extents."""
    value = program.values[position]
    reduction = value.attribute
    assert isinstance(reduction, Reduction)
    reduced = frozenset(axis.name for axis in reduction.axes)
    operand = value.operands[0]
    # What all rows share is in a cache.
    loads = [load for axes, load in _loads(program, operand) if axes == program.values[operand].axes]
    along = [load for load in loads if any(is_contiguous(load.index, axis) for axis in reduced)]
    if 2 * len(along) <= len(loads):
        return True
    buffers = {load.buffer for load in loads}
    return _steps(program, position) * _bits(program.values[operand]) // 8 * max(1, len(buffers)) > most


def _steps(program: LoopProgram, position: int) -> int:
    """Elements that a reduction has, of typical extents."""
    reduction = program.values[position].attribute
    assert isinstance(reduction, Reduction)
    return math.prod(axis.hint for axis in reduction.axes)


def _loads(program: LoopProgram, position: int) -> list[tuple[frozenset[str], Load]]:
    """The loads behind a value, up to reductions, each with its axes."""
    found, stack, seen = [], [position], {position}
    while stack:
        value = program.values[stack.pop()]
        if isinstance(value.attribute, Load):
            found.append((value.axes, value.attribute))
        if not isinstance(value.attribute, Reduction):
            stack += [operand for operand in value.operands if operand not in seen]
            seen.update(value.operands)
    return found
