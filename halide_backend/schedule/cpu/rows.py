"""Rows in parallel, each row's loops vectorized along memory: softmax, layer norm, sums over the last dimension."""

from __future__ import annotations

import math

from halide_backend.schedule.cpu.kernel import CpuKernel, Level, Nest, Tasks, is_short, loop_along, vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import ComputeWith, NeverPartition, Reorder, Split, Step, Unroll

UNROLL = Knob("rows.unroll", (1, 2, 4), "vectors of a row of an output that are computed together")
PARTITION = Knob(
    "rows.partition", (False, True), "vectors that lie within a row are a loop of their own, without a guard"
)


def rows(kernel: CpuKernel) -> Nest:
    """The rows of all outputs in one loop nest."""
    parent, outer = kernel.parent, kernel.outer
    work = max(1, kernel.work // math.prod(loop_along(parent, axis).extent for axis in outer))
    tasks = _tasks(kernel, work)
    steps: list[Step] = []
    for stage in kernel.outputs:
        inner = [loop for loop in stage.loops if loop.axis not in outer]
        order: list[str] = []
        if inner:
            lanes = kernel.lanes(stage.bits)
            tail = kernel.tail(stage, inner[0].axis, lanes)
            vector = vectors(stage.name, inner[0].name, inner[0].extent, lanes, tail=tail)
            steps += vector.steps
            unrolled = _unrolled(kernel, stage, inner[0], vector.loops[1])
            steps += unrolled
            if not kernel.choices.flag(PARTITION, True, "as Halide does"):
                steps.append(NeverPartition(stage.name, vector.loops[1]))
            order += [vector.loops[0], *([f"{vector.loops[1]}_u"] if unrolled else []), vector.loops[1]]
            order += [loop.name for loop in inner[1:]]
        cut = tasks.cut(stage.name, reversed(outer))
        steps += [*cut.steps, Reorder(stage.name, (*order, *cut.loops)), *tasks.shared(stage.name)]
    innermost = tasks.axis == outer[-1]
    level = Level(parent.name, tasks.inner if innermost else outer[-1])
    storage = Level(parent.name, tasks.outer) if innermost and tasks.inner != tasks.outer else None
    steps += [ComputeWith(stage.name, parent.name, level.var) for stage in kernel.outputs if stage is not parent]
    around = tuple((axis, Level(parent.name, tasks.inner if axis == tasks.axis else axis)) for axis in outer)
    return Nest(tuple(steps), level, around, tasks.axis, storage)


def _unrolled(kernel: CpuKernel, stage: Stage, loop: Loop, vectors_of: str) -> list[Step]:
    """Steps that compute several of the vectors of an output's `loop`, along `vectors_of`, together."""
    lanes = kernel.lanes(stage.bits)
    whole = -(-loop.extent // lanes) if is_short(kernel, loop, lanes) else 1
    why = "all of a short row, which stays in registers" if whole > 1 else "a vector at a time: the loop costs little"
    count = kernel.choices.number(UNROLL, whole, why)
    if count == 1:
        return []
    return [Split(stage.name, vectors_of, vectors_of, f"{vectors_of}_u", count), Unroll(stage.name, f"{vectors_of}_u")]


def _tasks(kernel: CpuKernel, work: int) -> Tasks:
    """The outer axis that threads share; one of its points has `work` operations."""
    if not kernel.parallel:
        return Tasks()
    outer, parent = kernel.outer, kernel.parent
    chosen = next((axis for axis in outer if loop_along(parent, axis).extent >= 8), None)
    if chosen is None:
        chosen = max(outer, key=lambda axis: loop_along(parent, axis).extent)
    below = outer[outer.index(chosen) + 1 :]
    inside = work * math.prod(loop_along(parent, axis).extent for axis in below)
    return Tasks(chosen, kernel.grain(loop_along(parent, chosen).extent, inside))
