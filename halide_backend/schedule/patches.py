"""Rules for CUDA kernels that transpose in registers: a thread has a patch of whole vectors along both axes."""

from __future__ import annotations

from halide_backend.schedule.parts import BLOCK
from halide_backend.schedule.stage import Role, Stage, StageGraph
from halide_backend.schedule.steps import (
    Bound,
    ComputeAt,
    Fuse,
    GpuBlocks,
    GpuThreads,
    NeverPartition,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
)
from halide_backend.schedule.tiling import Tiling

#: Threads that store what is adjacent: a warp stores four lines of 128 bytes, and reads eight of 64.
ALONG = 8

#: Lanes of the only vector that Halide turns into one memory instruction.
LANES = 4


def patches(graph: StageGraph, tiling: Tiling) -> tuple[Step, ...]:
    """Every thread reads vectors along one axis, and stores vectors along the other that it puts together itself."""
    (output,) = graph.outputs
    across, along = (f"{axis}_c" for axis in tiling.inner)
    (chunks,) = (loop.extent for loop in output.loops if loop.name == along)
    width = min(ALONG, 1 << (chunks - 1).bit_length())
    rest = [loop.name for loop in output.loops if loop.axis not in (*tiling.inner, "k")]
    steps: list[Step] = []
    within = _vectors(output, steps)
    steps += [
        Split(output.name, along, "along", "i", width),
        Split(output.name, across, "across", "j", BLOCK // width),
        Reorder(output.name, (*within, "i", "j", "across", "along", *rest)),
        GpuThreads(output.name, ("i", "j")),
    ]
    block = "across"
    for number, name in enumerate(("along", *rest)):
        steps.append(Fuse(output.name, block, name, f"block{number}"))
        block = f"block{number}"
    # LLVM would join the versions of inner and last blocks again, and cut vectors that both load to pieces.
    steps += [GpuBlocks(output.name, (block,)), NeverPartition(output.name, block)]
    for stage in graph.stages:
        if stage.role in (Role.STAGED_LOAD, Role.PACKED):
            words = stage.loops[0]
            steps += [ComputeAt(stage.name, output.name, "i"), Bound(stage.name, words.name, 0, words.extent)]
            _vectors(stage, steps)
    return tuple(steps)


def _vectors(stage: Stage, steps: list[Step]) -> list[str]:
    """Write out the loops of `stage` within a patch, whose words are vectors; their names, innermost first."""
    func = stage.name
    order: list[str] = []
    for loop in stage.loops:
        if loop.name == "k" and loop.extent > LANES:
            steps += [Split(func, "k", "ko", "kv", LANES), Vectorize(func, "kv"), Unroll(func, "ko")]
            order += ["kv", "ko"]
        elif loop.name == "k":
            steps.append(Vectorize(func, "k"))
            order.append("k")
        elif loop.name.endswith("_e"):
            steps.append(Unroll(func, loop.name))
            order.append(loop.name)
    return order
