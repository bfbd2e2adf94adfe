"""Which loops become the dimensions of a CUDA grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from halide_backend.errors import Unsupported
from halide_backend.schedule.stage import Loop
from halide_backend.schedule.steps import GpuBlocks, GpuThreads, Reorder, Split, Step

#: Blocks in the second and third dimension of a grid.
MOST_BLOCKS = 65_535


def fits_grid(extents: Sequence[int]) -> bool:
    """Whether loops of these extents can be the dimensions of a grid, whichever of them is the innermost."""
    shorter = sorted(extents, reverse=True)[1:]
    return all(extent <= MOST_BLOCKS for extent in shorter) and all(extent == 1 for extent in shorter[2:])


def innermost(loops: Sequence[Loop]) -> Loop:
    """Which of `loops`, innermost first, is the innermost in a grid: a long one, or one of dynamic extent, if any."""
    longest = min(loops, key=lambda loop: (loop.fixed, -loop.extent))
    return loops[0] if longest.fixed and longest.extent <= MOST_BLOCKS else longest


def grid(func: str, loops: Sequence[Loop]) -> tuple[Step, ...]:
    """Give `loops`, innermost first, to the dimensions of a grid, of which only the innermost may be long.

    Loops of one iteration stay loops if no dimension is left.

    Raises:
        Unsupported: they are too many, or too long.
    """
    inner = innermost(loops)
    place = loops.index(inner)
    others = [*loops[:place], *loops[place + 1 :]]
    ordered = sorted(loops, key=lambda loop: -loop.extent)
    long = any(loop.extent > MOST_BLOCKS or not loop.fixed for loop in others)
    if long or any(loop.extent > 1 or not loop.fixed for loop in ordered[3:]):
        extents = " x ".join(str(loop.extent) for loop in loops)
        raise Unsupported("grid-too-large", f"a grid of {extents} blocks, more than N x {MOST_BLOCKS} x {MOST_BLOCKS}")
    dimensions = GpuBlocks(func, tuple(loop.name for loop in ordered[:3]))
    return (Reorder(func, (inner.name, *(loop.name for loop in others))), dimensions) if place else (dimensions,)


def plane(func: str, outer: Sequence[Loop], within: Sequence[str], block: int) -> tuple[Step, ...]:
    """Blocks of `block` threads over the first two of the loops `outer`, which have the loops `within` inside.

    Halide loses the bounds of a fused loop where outputs are computed together.
    """
    first, second, *rest = outer
    width = min(block, 1 << (first.extent - 1).bit_length())
    return (
        Split(func, first.name, "block", "thread", width),
        Split(func, second.name, "block2", "thread2", block // width),
        Reorder(func, (*within, "thread", "thread2", "block", "block2", *(loop.name for loop in rest))),
        GpuThreads(func, ("thread", "thread2")),
        *grid(func, [blocks(first, "block", width), blocks(second, "block2", block // width), *rest]),
    )


def blocks(loop: Loop, name: str, steps: int) -> Loop:
    """The loop `name` over blocks, if each does `steps` iterations of `loop`."""
    return replace(loop, name=name, extent=-(-loop.extent // steps))
