"""Stores at computed positions on CUDA: every thread takes some of the points."""

from __future__ import annotations

from halide_backend.schedule.cuda.pointwise import BLOCK, parts_of_a_thread
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel
from halide_backend.schedule.steps import (
    AllowRaceConditions,
    GpuBlocks,
    GpuThreads,
    NeverPartition,
    Split,
    Step,
    Unroll,
)


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """The points of the output in any order, several of those that move little for one thread."""
    stage = kernel.parent
    element, points = stage.updates
    parts = parts_of_a_thread(points.extent, element.extent * stage.bits // 8, kernel.device)
    # LLVM would join the versions of full and last blocks again, and part the additions that are one instruction.
    once = (NeverPartition(stage.name, "r$block", update=True),) if element.extent > 1 else ()
    return (
        AllowRaceConditions(stage.name),
        Split(stage.name, points.name, "r$block", "r$within", parts * BLOCK, update=True),
        Split(stage.name, "r$within", "r$part", "r$thread", BLOCK, update=True),
        Unroll(stage.name, element.name, update=True),
        Unroll(stage.name, "r$part", update=True),
        GpuThreads(stage.name, ("r$thread",), update=True),
        GpuBlocks(stage.name, ("r$block",), update=True),
        *once,
    )
