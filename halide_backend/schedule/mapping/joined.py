"""Results in one loop nest of one Func, whose elements they are: its loops can be written in several versions, and what
a vector of each result needs is loaded before any is stored.

Loops of several Funcs that are computed together have one version, in which the last vector of a row of computed length
has a guard.
"""

from __future__ import annotations

from halide_backend.program.access import is_contiguous
from halide_backend.program.loop_program import Load, LoopProgram, Reduction
from halide_backend.program.store_layout import output_layout
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices, Knob

JOINED = Knob("results.joined", (False, True), "several results are one Func's, whose loops may have several versions")

#: Results from which on a processor is slower if it loads again between their stores ("gradients of four norms of a
#: sum" in benchmarks/kinds_of_kernels.py). Of two there was as much loss as gain.
_SEVERAL = 3

#: Vectors of columns from which on they are several blocks, whose last one may begin earlier.
_BLOCKS = 8


def joined(program: LoopProgram, device: Cpu, choices: Choices) -> bool:
    """Whether the results of `program`, of which none is turned, are elements of one Func."""
    if len(program.stores) < 2 or any(buffer.mutated for buffer in program.outputs):
        return False
    layouts = [output_layout(store, program) for store in program.stores]
    extents = {axis.name: axis.extent for axis in program.axes}
    if any(each.scattered or each.variables != layouts[0].variables for each in layouts) or not layouts[0].variables:
        return False
    computed = any(not isinstance(extent, int) for extent in extents.values())
    if computed:
        return choices.flag(JOINED, True, "the last vector of a row of computed length has no guard")
    if _ends_within_a_vector(program, layouts[0].variables[0], device.vector_bytes // 4):
        return choices.flag(JOINED, True, "the last block of columns begins earlier, with accumulators in registers")
    several = len(program.stores) >= _SEVERAL
    why = "loads come before the stores of all results" if several else "no loop needs a second version"
    return choices.flag(JOINED, several, why)


def _ends_within_a_vector(program: LoopProgram, column: str, lanes: int) -> bool:
    """Whether columns along axis `column` are reduced whose number is known, and no multiple of `lanes`: of Funcs that
    are computed together one masks the accumulators of all blocks, in memory."""
    extent = next(axis.extent for axis in program.axes if axis.name == column)
    if not isinstance(extent, int) or extent % lanes == 0 or extent < _BLOCKS * lanes:
        return False
    reductions = [value.attribute for value in program.values if isinstance(value.attribute, Reduction)]
    rows = [axes for each in reductions if column not in (axes := {axis.name for axis in each.axes})]
    lines = [
        value.axes
        for value in program.values
        if isinstance(value.attribute, Load) and is_contiguous(value.attribute.index, column)
    ]
    return any(axes <= line for axes in rows for line in lines)
