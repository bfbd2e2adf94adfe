"""A few columns of computed number: their reductions have whole vectors of accumulators, which registers hold.

A condition of the algorithm leaves out what lies beyond the last column, where loads are masked. A guard of the loop
would do the same; but Halide writes the loop for whole vectors, too, and which accumulators there are depends on the
number of columns, so that they lie in memory.
"""

from __future__ import annotations

from halide_backend.program.loop_program import Load, LoopProgram, Reduction
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.mapping.chunks import contiguous_axis
from halide_backend.schedule.stage import Role

#: Vectors of columns that are too many.
_VECTORS = 4


def narrow_columns(program: LoopProgram, roles: set[Role], joined: bool, device: Cpu) -> str:
    """The axis of such columns, "" if there is none: one result, or several that are `joined`, which are made of
    reductions over other axes alone."""
    name = contiguous_axis(program)
    axis = next((axis for axis in program.outer if axis.name == name), None)
    if axis is None or isinstance(axis.extent, int) or axis.hint >= _VECTORS * device.vector_bytes // 4:
        return ""
    reductions = [value for value in program.values if isinstance(value.attribute, Reduction)]
    if not reductions or any(name not in value.axes for value in reductions) or not roles <= {Role.INLINE}:
        return ""
    alone = joined or len(program.stores) == 1
    return name if alone and not program.checks and not _loads_besides(program) else ""


def _loads_besides(program: LoopProgram) -> bool:
    """Whether something is loaded that no reduction needs."""
    stack = [store.value for store in program.stores]
    while stack:
        value = program.values[stack.pop()]
        if isinstance(value.attribute, Load):
            return True
        if not isinstance(value.attribute, Reduction):
            stack += value.operands
    return False
