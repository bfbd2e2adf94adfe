"""Values that several uses share: computed once, at the level that the outputs have in common."""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import CpuKernel, Level, vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import ComputeAt, Reorder, Step

STORED = Knob("stored.stores", (False, True), "keep a value that several uses share, instead of computing it for each")


def is_stored(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether `stage` is computed once for all of its uses; old values of what is overwritten have to be."""
    why = "each of its uses would compute it again"
    return stage.role is Role.PRESERVED or kernel.choices.flag(STORED, True, why, at=stage.name)


def stored(kernel: CpuKernel, stage: Stage, level: Level) -> list[Step]:
    """Steps that compute `stage` at `level`, in vectors along memory."""
    steps: list[Step] = [ComputeAt(stage.name, level.parent, level.var)]
    inner = [loop for loop in stage.loops if loop.axis not in kernel.graph.outer]
    columns = [loop for loop in stage.loops if loop.axis == kernel.contiguous]
    loop = next(iter(columns or inner), None)
    if loop is not None and loop.extent >= 4:
        vector = vectors(stage.name, loop.name, loop.extent, kernel.lanes(stage.bits))
        rest = [other.name for other in stage.loops if other is not loop]
        steps += [*vector.steps, Reorder(stage.name, (*vector.loops, *rest))]
    return steps
