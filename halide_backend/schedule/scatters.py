"""Rules for CUDA kernels that store at computed positions: every thread takes some of the points."""

from __future__ import annotations

from halide_backend.schedule.device import Gpu
from halide_backend.schedule.parts import BLOCK, parts_of_a_thread
from halide_backend.schedule.stage import Stage
from halide_backend.schedule.steps import (
    AllowRaceConditions,
    GpuBlocks,
    GpuThreads,
    NeverPartition,
    Split,
    Step,
    Unroll,
)


def scatters(stage: Stage, device: Gpu) -> tuple[Step, ...]:
    """The points of `stage` in any order, several of those that move little for one thread."""
    element, points = stage.updates
    parts = parts_of_a_thread(points.extent, element.extent * stage.bits // 8, device)
    # LLVM would join the versions of full and last blocks again, and part the additions that are one instruction.
    once = (NeverPartition(stage.name, "r$block", update=0),) if element.extent > 1 else ()
    return (
        AllowRaceConditions(stage.name),
        Split(stage.name, points.name, "r$block", "r$within", parts * BLOCK, update=0),
        Split(stage.name, "r$within", "r$part", "r$thread", BLOCK, update=0),
        Unroll(stage.name, element.name, update=0),
        Unroll(stage.name, "r$part", update=0),
        GpuThreads(stage.name, ("r$thread",), update=0),
        GpuBlocks(stage.name, ("r$block",), update=0),
        *once,
    )
