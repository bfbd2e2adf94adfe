"""Rules for CUDA kernels that transpose: a block has a square of both axes."""

from __future__ import annotations

from halide_backend.schedule.grid import blocks, grid, innermost
from halide_backend.schedule.stage import Role, Stage, StageGraph
from halide_backend.schedule.steps import (
    AlignStorage,
    ComputeAt,
    ComputeWith,
    Fuse,
    GpuBlocks,
    GpuThreads,
    Reorder,
    Split,
    Step,
    StoreIn,
    Unroll,
)
from halide_backend.schedule.tiling import WARP, Tiling

#: Threads of a block, which take so many lines of their square at a time.
THREADS = 256


def squares(graph: StageGraph, tiling: Tiling) -> tuple[Step, ...]:
    """Squares of both axes: transposed operands are read along their own memory, and lie in padded shared memory
    so that reading them across it meets no bank twice. Of 16-bit numbers a thread stores two at a time.
    """
    steps: list[Step] = []
    side = tiling.side
    # The threads of a warp read what is adjacent, also where fewer of them write a line.
    lanes = max(side, WARP)
    outputs = sorted(graph.outputs, key=lambda stage: -stage.points)
    parent = outputs[0]
    numbers = {loop.axis: loop.name for loop in parent.loops if loop.name not in ("k", f"{tiling.chunk}_e")}
    down, along = (numbers[axis] for axis in tiling.inner)
    for stage in outputs:
        words = [loop.name for loop in stage.loops if loop.name == "k"]
        rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *words)]
        steps += [
            Split(stage.name, along, "along", "i", side),
            Split(stage.name, down, "down", "part", tiling.lines),
            Split(stage.name, "part", "line", "y", THREADS // side),
            Reorder(stage.name, (*words, "line", "i", "y", "along", "down", *rest)),
            *_threads(stage, tiling),
            *(Unroll(stage.name, name) for name in (*words, "line")),
        ]
        if len(outputs) > 1:
            # Halide loses the bounds of a fused loop where outputs are computed together.
            loops = {loop.name: loop for loop in stage.loops}
            sides = blocks(loops[along], "along", side), blocks(loops[down], "down", tiling.lines)
            counts = [*sides, *(loops[name] for name in rest)]
            steps += grid(stage.name, counts)
            block = innermost(counts).name
        else:
            steps.append(Fuse(stage.name, "along", "down", "square"))
            block = "square"
            for number, name in enumerate(rest):
                steps.append(Fuse(stage.name, block, name, f"square{number}"))
                block = f"square{number}"
            steps += [GpuBlocks(stage.name, (block,))]
        if stage is not parent:
            steps.append(ComputeWith(stage.name, parent.name, "line"))
    for stage in graph.stages:
        elements = [loop.name for loop in stage.loops if loop.name in ("k", f"{tiling.chunk}_e")]
        if stage.role is Role.TILE:
            rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *elements)]
            steps += [
                ComputeAt(stage.name, parent.name, block),
                StoreIn(stage.name, "GPUShared"),
                AlignStorage(stage.name, along, side + (1 if tiling.chunk else max(1, 32 // stage.bits))),
                # Halide 21 computes half of a stage whose loop is called "s".
                Split(stage.name, along, "line", "y", THREADS // lanes),
                Split(stage.name, down, "half", "i", lanes),
                Reorder(stage.name, (*elements, "half", "line", "i", "y", *rest)),
                *(Unroll(stage.name, name) for name in (*elements, "half", "line")),
                *_threads(stage, tiling),
            ]
        elif stage.role in (Role.STAGED_LOAD, Role.PACKED):
            steps += [ComputeAt(stage.name, parent.name, "line"), *(Unroll(stage.name, name) for name in elements)]
    return tuple(steps)


def _threads(stage: Stage, tiling: Tiling) -> tuple[Step, ...]:
    """Two dimensions of threads, or one where the stages of a block have different ones: its bounds take branches."""
    if tiling.side >= WARP:
        return (GpuThreads(stage.name, ("i", "y")),)
    return Fuse(stage.name, "i", "y", "thread"), GpuThreads(stage.name, ("thread",))
