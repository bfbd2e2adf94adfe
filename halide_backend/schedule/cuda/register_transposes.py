"""Transposes on CUDA in registers: a thread has a patch of whole vectors along both axes."""

from __future__ import annotations

from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, load_words, write_out
from halide_backend.schedule.stage import LoopKind, Role
from halide_backend.schedule.steps import (
    ComputeAt,
    Fuse,
    GpuBlocks,
    GpuThreads,
    NeverPartition,
    Reorder,
    Split,
    Step,
)

#: Threads of a block.
THREADS = 128

#: Threads that store what is adjacent: a warp stores four lines of 128 bytes, and reads eight of 64.
ALONG = 8


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Every thread reads vectors along one axis, and stores vectors along the other that it puts together itself."""
    found: list[Step] = []
    output = kernel.parent
    patches = [loop for loop in output.loops if loop.kind is LoopKind.AXIS]
    across, along = (next(loop for loop in patches if loop.axis == axis) for axis in kernel.tiling.inner)
    width = min(ALONG, 1 << (along.extent - 1).bit_length())
    rest = [loop.name for loop in patches if loop not in (across, along)]
    within = write_out(found, output.name, output.loops)
    found += [
        Split(output.name, along.name, "along", "i", width),
        Split(output.name, across.name, "across", "j", THREADS // width),
        Reorder(output.name, (*within, "i", "j", "across", "along", *rest)),
        GpuThreads(output.name, ("i", "j")),
    ]
    block = "across"
    for number, name in enumerate(("along", *rest)):
        found.append(Fuse(output.name, block, name, f"block{number}"))
        block = f"block{number}"
    # LLVM would join the versions of inner and last blocks again, and cut vectors that both load to pieces.
    found += [GpuBlocks(output.name, (block,)), NeverPartition(output.name, block)]
    for stage in kernel.graph.stages:
        if stage.role in (Role.STAGED_LOAD, Role.PACKED):
            load_words(found, stage, ComputeAt(stage.name, output.name, "i"))
    return tuple(found)
