"""Square tiles for transposed operands: these are read along their own memory into a small copy."""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import CpuKernel, Level, Nest, same_loops, vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import ComputeAt, ComputeWith, Parallel, Reorder, Split, Step, Unroll, Vectorize

TILE = Knob("transposes.tile", (4, 8, 16), "side of the tile through which a transposed operand is copied")


def transposes(kernel: CpuKernel) -> Nest | None:
    """The outputs in tiles, where an operand runs along another axis than they do."""
    parent = kernel.parent
    inner_axes = {loop.axis for stage in kernel.outputs for loop in stage.loops} - set(kernel.row)
    if kernel.contiguous not in kernel.row and (inner_axes or kernel.reduces):
        return None
    column = kernel.contiguous if kernel.contiguous in kernel.row else kernel.row[-1]
    loads = _transposed(kernel, column)
    if not loads or not all(same_loops(stage, parent) for stage in kernel.outputs):
        return None
    across = _along(loads[0])
    tile = kernel.choices.number(TILE, 8, "eight vector loads and stores of float32 on AVX2")
    # In one order for all of them, whatever the order in their memory is: their loops are fused.
    rest = [loop.name for loop in parent.loops if loop.axis not in (column, across)]
    steps: list[Step] = []
    for stage in kernel.outputs:
        steps += [
            Split(stage.name, column, f"{column}_o", f"{column}_v", tile),
            Split(stage.name, across, f"{across}_o", f"{across}_u", tile),
            Reorder(stage.name, (f"{column}_v", f"{across}_u", f"{column}_o", f"{across}_o", *rest)),
            Vectorize(stage.name, f"{column}_v"),
            Unroll(stage.name, f"{across}_u"),
        ]
        if kernel.parallel:
            steps.append(Parallel(stage.name, rest[-1] if rest else f"{across}_o"))
    level = Level(parent.name, f"{column}_o")
    steps += [ComputeWith(stage.name, parent.name, level.var) for stage in kernel.outputs if stage is not parent]
    for load in loads:
        inner = _along(load)
        others = (loop.name for loop in load.loops if loop.name != inner)
        steps.append(ComputeAt(load.name, level.parent, level.var))
        loops: tuple[str, ...] = (inner,)
        if inner == across:
            vector = vectors(load.name, inner, tile, tile)
            steps += vector.steps
            loops = vector.loops
        steps.append(Reorder(load.name, (*loops, *others)))
    return Nest(tuple(steps), level)


def _transposed(kernel: CpuKernel, column: str) -> list[Stage]:
    loads = [s for s in kernel.graph.stages if s.role is Role.STAGED_LOAD and s.name in kernel.inside]
    axes = {loop.axis for loop in kernel.parent.loops}
    return [s for s in loads if {loop.axis for loop in s.loops} <= axes and _along(s) != column]


def _along(stage: Stage) -> str:
    """The axis along which a staged load is adjacent in memory."""
    return max(stage.contiguous, key=lambda axis: stage.contiguous[axis])
