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
    so that reading them across it meets no bank twice. Of 16-bit numbers a thread stores two at a time.
    """
    steps: list[Step] = []
    down, along = tiling.inner
    along = f"{along}_c" if tiling.chunk else along
    outputs = sorted(graph.outputs, key=lambda stage: -stage.points)
    parent = outputs[0]
    for stage in outputs:
        words = [loop.name for loop in stage.loops if loop.name == "k"]
        rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *words)]
        steps += [
            Split(stage.name, along, "along", "i", SIDE),
            Split(stage.name, down, "down", "part", SIDE * tiling.elements),
            Split(stage.name, "part", "line", "y", SIDE_THREADS),
            Reorder(stage.name, (*words, "line", "i", "y", "along", "down", *rest)),
            *(Unroll(stage.name, name) for name in (*words, "line")),
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
        elements = [loop.name for loop in stage.loops if loop.name in ("k", f"{tiling.chunk}_e")]
        if stage.role is Role.TILE:
            rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *elements)]
            steps += [
                ComputeAt(stage.name, parent.name, block),
                StoreInShared(stage.name),
                AlignStorage(stage.name, along, SIDE + 1),
                # Halide 21 computes half of a stage whose loop is called "s".
                Split(stage.name, along, "line", "y", SIDE_THREADS),
                Split(stage.name, down, "half", "i", SIDE),
                Reorder(stage.name, (*elements, "half", "line", "i", "y", *rest)),
                *(Unroll(stage.name, name) for name in (*elements, "half", "line")),
                GpuThreads(stage.name, ("i", "y")),
            ]
        elif stage.role in (Role.STAGED_LOAD, Role.PACKED):
            steps += [ComputeAt(stage.name, parent.name, "line"), *(Unroll(stage.name, name) for name in elements)]
    return tuple(steps)
