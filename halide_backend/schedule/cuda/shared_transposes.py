"""Transposes on CUDA through shared memory: a block has a square of both axes."""

from __future__ import annotations

from halide_backend.schedule.cuda.grid import blocks, grid, innermost
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, is_element
from halide_backend.schedule.stage import LoopKind, Role, Stage
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
from halide_backend.schedule.tiling import WARP, Tiling

#: Threads of a block, which take so many lines of their square at a time.
THREADS = 256


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Transposed operands are read along their own memory, and lie in padded shared memory so that reading them across
    it meets no bank twice. Of 16-bit numbers a thread stores two at a time.
    """
    found: list[Step] = []
    tiling, parent = kernel.tiling, kernel.parent
    numbers = {loop.axis: loop.name for loop in parent.loops if not is_element(loop)}
    down, along = (numbers[axis] for axis in tiling.inner)
    block = ""
    for stage in kernel.outputs:
        block = _output(found, kernel, stage, down, along)
        if stage is not parent:
            found.append(ComputeWith(stage.name, parent.name, "line"))
    for stage in kernel.graph.stages:
        elements = [loop.name for loop in stage.loops if is_element(loop)]
        if stage.role is Role.TILE:
            found += _tile(stage, tiling, ComputeAt(stage.name, parent.name, block), down, along)
        elif stage.role in (Role.STAGED_LOAD, Role.PACKED):
            found += [ComputeAt(stage.name, parent.name, "line"), *(Unroll(stage.name, name) for name in elements)]
    return tuple(found)


def _output(found: list[Step], kernel: TiledKernel, stage: Stage, down: str, along: str) -> str:
    """Give squares of `stage` to blocks; returns the loop of these."""
    side, lines = kernel.tiling.side, kernel.tiling.lines
    words = [loop.name for loop in stage.loops if loop.kind is LoopKind.WORD]
    rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *words)]
    found += [
        Split(stage.name, along, "along", "i", side),
        Split(stage.name, down, "down", "part", lines),
        Split(stage.name, "part", "line", "y", THREADS // side),
        Reorder(stage.name, (*words, "line", "i", "y", "along", "down", *rest)),
        *_threads(stage, side),
        *(Unroll(stage.name, name) for name in (*words, "line")),
    ]
    if len(kernel.outputs) > 1:
        # Halide loses the bounds of a fused loop where outputs are computed together.
        loops = {loop.name: loop for loop in stage.loops}
        sides = blocks(loops[along], "along", side), blocks(loops[down], "down", lines)
        counts = [*sides, *(loops[name] for name in rest)]
        found += grid(stage.name, counts)
        return innermost(counts).name
    found.append(Fuse(stage.name, "along", "down", "square"))
    block = "square"
    for number, name in enumerate(rest):
        found.append(Fuse(stage.name, block, name, f"square{number}"))
        block = f"square{number}"
    found.append(GpuBlocks(stage.name, (block,)))
    return block


def _tile(stage: Stage, tiling: Tiling, place: ComputeAt, down: str, along: str) -> list[Step]:
    """Load the square of a transposed operand at `place`."""
    # The threads of a warp read what is adjacent, also where fewer of them write a line.
    lanes = max(tiling.side, WARP)
    elements = [loop.name for loop in stage.loops if is_element(loop)]
    rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *elements)]
    return [
        place,
        StoreInShared(stage.name),
        AlignStorage(stage.name, along, tiling.side + (1 if tiling.chunk else max(1, 32 // stage.bits))),
        # Halide 21 computes half of a stage whose loop is called "s".
        Split(stage.name, along, "line", "y", THREADS // lanes),
        Split(stage.name, down, "half", "i", lanes),
        Reorder(stage.name, (*elements, "half", "line", "i", "y", *rest)),
        *(Unroll(stage.name, name) for name in (*elements, "half", "line")),
        *_threads(stage, tiling.side),
    ]


def _threads(stage: Stage, side: int) -> tuple[Step, ...]:
    """Two dimensions of threads, or one where the stages of a block have different ones: its bounds take branches."""
    if side >= WARP:
        return (GpuThreads(stage.name, ("i", "y")),)
    return Fuse(stage.name, "i", "y", "thread"), GpuThreads(stage.name, ("thread",))
