"""Rows of dynamic length: a second version of their loops, in which no lane of a vector lacks an element."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.schedule.cpu.kernel import CpuKernel
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.steps import RFactor, Specialize, Split, Step

SPECIALIZED = Knob(
    "rows.specialized", (False, True), "a version of the loops for rows whose reductions fill at least one vector"
)

#: Vectors of a row up to which combining its lanes takes a good part of the time.
_VECTORS = 16


def specialized(kernel: CpuKernel, steps: Sequence[Step]) -> list[Step]:
    """A step before the others, `steps`, where a reduction inside the one output's loops runs in lanes along a size.

    Lanes may be more than the steps of its loop. So Halide guards each step in which it combines them.
    """
    if len(kernel.outputs) != 1 or any(isinstance(step, Split) and step.tail != Split.tail for step in steps):
        return []
    factored = {(step.func, step.rvar) for step in steps if isinstance(step, RFactor)}
    lanes = {
        (step.func, step.old): step.factor
        for step in steps
        if isinstance(step, Split) and step.update == 0 and (step.func, step.inner) in factored
    }
    inside = (stage for stage in kernel.graph.stages if stage.name in kernel.inside - kernel.invariant)
    rows = [
        (loop, lanes[stage.name, loop.name])
        for stage in inside
        for loop in stage.updates
        if (stage.name, loop.name) in lanes
    ]
    sizes = [(loop.size, width) for loop, width in rows if loop.size and width <= loop.extent <= _VECTORS * width]
    if not sizes:
        return []
    size, least = max(sizes, key=lambda found: found[1])
    if not kernel.choices.flag(SPECIALIZED, True, "few vectors, and as many steps that combine their lanes"):
        return []
    return [Specialize(kernel.outputs[0].name, size, least)]
