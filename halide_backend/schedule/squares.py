"""Rules for CUDA kernels that transpose: a block has a square of both axes."""

from __future__ import annotations

from halide_backend.schedule.stage import Role, StageGraph
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
    StoreInShared,
    Unroll,
)
from halide_backend.schedule.tiling import Tiling

#: Side of the square through which a block transposes, and how many of its lines its threads take at a time.
SIDE, SIDE_THREADS = 32, 8


def squares(graph: StageGraph, tiling: Tiling) -> tuple[Step, ...]:
    """Squares of both axes: transposed operands are read along their own memory, and lie in padded shared memory
    so that reading them across it meets no bank twice. A warp takes two stretches of narrow elements."""
    steps: list[Step] = []
    down, along = tiling.inner
    outputs = sorted(graph.outputs, key=lambda stage: -stage.points)
    parent = outputs[0]
    side = 2 * SIDE if all(stage.bits <= 16 for stage in outputs) else SIDE
    for stage in outputs:
        rest = [loop.name for loop in stage.loops if loop.name not in (down, along)]
        steps += [
            Split(stage.name, along, "along", "within", side),
            Split(stage.name, down, "down", "part", side),
            Split(stage.name, "within", "half", "i", SIDE),
            Split(stage.name, "part", "line", "y", SIDE_THREADS),
            Reorder(stage.name, ("half", "line", "i", "y", "along", "down", *rest)),
            Unroll(stage.name, "half"),
            Unroll(stage.name, "line"),
            Fuse(stage.name, "along", "down", "square"),
        ]
        block = "square"
        for number, name in enumerate(rest):
            steps.append(Fuse(stage.name, block, name, f"square{number}"))
            block = f"square{number}"
        steps += [GpuThreads(stage.name, ("i", "y")), GpuBlocks(stage.name, (block,))]
        if stage is not parent:
            steps.append(ComputeWith(stage.name, parent.name, "i"))
    for stage in graph.stages:
        if stage.role is Role.TILE:
            rest = [loop.name for loop in stage.loops if loop.name not in (down, along)]
            steps += [
                ComputeAt(stage.name, parent.name, block),
                StoreInShared(stage.name),
                AlignStorage(stage.name, stage.loops[0].name, side + 1),
                # Halide 21 computes half of a stage whose loop is called "s".
                Split(stage.name, along, "line", "y", SIDE_THREADS),
                Split(stage.name, down, "half", "i", SIDE),
                Reorder(stage.name, ("half", "line", "i", "y", *rest)),
                Unroll(stage.name, "half"),
                Unroll(stage.name, "line"),
                GpuThreads(stage.name, ("i", "y")),
            ]
    return tuple(steps)
