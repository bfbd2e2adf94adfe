"""Results in one loop nest of one Func, whose elements they are: its loops can be written in several versions, and what
a vector of each result needs is loaded before any is stored.

Loops of several Funcs that are computed together have one version, in which the last vector of a row of computed length
has a guard.
"""

from __future__ import annotations

from halide_backend.program.loop_program import LoopProgram
from halide_backend.program.store_layout import output_layout
from halide_backend.schedule.knobs import Choices, Knob

JOINED = Knob("results.joined", (False, True), "several results are one Func's, whose loops may have several versions")

#: Results from which on a processor is slower if it loads again between their stores ("gradients of four norms of a
#: sum" in benchmarks/kinds_of_kernels.py). Of two there was as much loss as gain.
_SEVERAL = 3


def joined(program: LoopProgram, choices: Choices) -> bool:
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
    several = len(program.stores) >= _SEVERAL
    why = "loads come before the stores of all results" if several else "no loop needs a second version"
    return choices.flag(JOINED, several, why)
