"""Loop nests of their own, for what shares no outer axis with the rest: full sums, copies that precede a kernel."""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import CpuKernel, Nest, vectors
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import Parallel, Step


def separate_nests(kernel: CpuKernel) -> Nest | None:
    """A loop nest for each output, where they have no outer axis in common."""
    if kernel.outer:
        return None
    return Nest(tuple(step for stage in kernel.outputs for step in own_nest(kernel, stage)))


def own_nest(kernel: CpuKernel, stage: Stage) -> list[Step]:
    """Steps of `stage` alone: vectors along its memory, the outermost loop shared among threads."""
    if not stage.loops:
        return []
    steps: list[Step] = []
    inner, outer = stage.loops[0], stage.loops[0].name
    if stage.role is not Role.SERIAL:
        vector = vectors(stage.name, inner.name, inner.extent, kernel.lanes(stage.bits))
        steps += vector.steps
        _, outer = vector.loops
    if kernel.parallel:
        rest = [loop.name for loop in stage.loops[1:] if loop.extent > 1]
        steps.append(Parallel(stage.name, rest[-1] if rest else outer))
    return steps
