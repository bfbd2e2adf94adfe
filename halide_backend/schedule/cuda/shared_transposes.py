"""Transposes on CUDA through shared memory: a block has a tile of both axes."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.build.target import SHARED_BYTES
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.strided_loads import transposed_axes
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.grid import blocks, grid, innermost
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, are_fixed, is_element
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.stage import LoopKind, Role, Stage
from halide_backend.schedule.steps import (
    AlignStorage,
    BoundExtent,
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
from halide_backend.schedule.tiling import WARP, Tiling, TilingKind

ELEMENTS = Knob("shared_transposes.elements", (1, 2), "adjacent numbers of 16 bits that a thread stores at a time")
SIDE = Knob("shared_transposes.side", (8, 16, 32, 64), "steps of a tile along the axis that is written along")
LINES = Knob("shared_transposes.lines", (32, 64), "elements of a tile along the axis that is read along")
THREADS = Knob("shared_transposes.threads", (64, 128, 256, 512), "threads of a block, which take some lines at a time")

#: Sides of the tile through which a block transposes. Where rows do not begin with a sector of memory, of so many
#: bytes, fewer of them belong to two large tiles (measured on an H200: 4099 x 2001 floats 29 us, of small ones 40 us;
#: but 8192 x 2048 floats 53 us, of 32 x 64 elements 50.5 us, of small ones 52 us). So many large tiles fill the GPU.
_SMALL_SIDE, _LARGE_SIDE, _SECTOR, _ENOUGH_TILES = 32, 64, 32, 512

#: The same along axes that are shorter, and end before another one that is read along; the narrower one along dynamic
#: axes (measured on an H200: 32 x 14 x 14 x 14 x 200 bfloat16 with the dimensions 0, 3, 1, 4, 2 40.7 us with 32, 28.9
#: us with 16, floats 49.7 and 40.7 us).
_NARROW_SIDES = (8, 16)

#: The part of large tiles' elements, of small ones', up to which the large ones are better: at 131 elements 192 to 160
#: are too many (dimensions 2, 0, 3, 1 of 577 x 61 x 7 x 131 bfloat16 50.8 us, with 32 lines 47.2 us).
_BEYOND = 1.15

#: Bytes of shared memory that large tiles may have.
_SQUARE_BYTES = 40 << 10

#: Bytes that a thread stores of a large tile of unknown sizes, and threads of a block (measured on an H200: the
#: channels of 334 x 32 x 56 x 56 bytes to the last dimension 38.1 us with 256 threads, 28.4 us with 64; of bfloat16
#: 45.5 us with 256, 41.0 us with 128; of floats 68.5 us with 256, 69.9 us with 128).
_STORED, _FEWEST_THREADS, _MOST_THREADS = 32, 64, 256

#: Elements by which a line of a tile in shared memory is longer than the tile, at most.
_PADDING = 4

PADDING = Knob(
    "shared_transposes.padding", (0, 1, 2, _PADDING), "elements between the lines of a tile in shared memory"
)


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Tiles of single elements, or of pairs if all that is stored has 16 bits and they fill their tiles."""
    axes = transposed_axes(facts.program)
    if axes is None:
        return None
    across, along = axes
    tiling = Tiling(TilingKind.SHARED_TRANSPOSE, facts.outer, axes)
    pair_sides = [side for side in (_SMALL_SIDE, _SMALL_SIDE // 2) if facts.divides(2 * side, along)]
    elements = 1
    if pair_sides and {ELEMENT[buffer.dtype][1] for buffer in facts.program.outputs} == {16}:
        elements = choices.number(ELEMENTS, 2, "a word of pairs takes one instruction")
    if elements == 2:
        tiling = replace(tiling, chunk=along, elements=2)
        side, why = pair_sides[0], "the largest whose pairs fill their tiles"
        # Of a shorter axis half of a large tile would be beyond the end.
        lines = _LARGE_SIDE if facts.hints[across] > _SMALL_SIDE else _SMALL_SIDE
    else:
        side, lines, why = _sides(facts, across, axes)
    side = choices.number(SIDE, side, why)
    filled = elements == 1 or facts.divides(2 * side, along)
    choices.require(SIDE, filled, f"{side} pairs do not divide the axis that is written along")
    lines = choices.number(LINES, lines, f"tiles of {_LARGE_SIDE} where there are {_ENOUGH_TILES} of them, or pairs")
    stored = sum(facts.transposed_bytes) * elements * max((side + _PADDING) * lines, side * (lines + _PADDING))
    choices.require(SIDE, stored <= SHARED_BYTES, f"tiles of {stored} bytes; shared memory has {SHARED_BYTES}")
    return replace(tiling, side=side, lines=lines)


def _sides(facts: Facts, across: str, axes: tuple[str, str]) -> tuple[int, int, str]:
    """Side and lines of a tile of single elements, and why the side."""
    sizes, along = facts.transposed_bytes, axes[1]
    if facts.is_dynamic(along) and facts.hints[along] <= _NARROW_SIDES[-1]:
        side = next(side for side in _NARROW_SIDES if facts.hints[along] <= side)
        return side, _LARGE_SIDE, "more would typically be beyond the end of the axis that is written along"
    stored = [ELEMENT[buffer.dtype][1] // 8 for buffer in facts.program.outputs]
    whole = all(facts.divides_bytes(_SECTOR, across, size) for size in sizes)
    # A small tile's side of 16-bit elements is two sectors, of which rows that begin within sectors fill one.
    whole = whole and (max(stored) > 2 or facts.divides_bytes(_SECTOR, along, max(stored)))
    counts = (-(-facts.hints[name] // (_LARGE_SIDE if name in axes else 1)) for name in facts.outer)
    many = math.prod(counts) >= _ENOUGH_TILES
    # Of a shorter axis half of a large tile would be beyond the end.
    lines = _large_side(facts, across) if many else _SMALL_SIDE
    if many and _NARROW_SIDES[0] < facts.hints[along] <= _NARROW_SIDES[-1]:
        return _NARROW_SIDES[-1], lines, "more would be beyond the end of the axis that is written along"
    long = facts.hints[along] > _SMALL_SIDE
    fits = sum(sizes) * _LARGE_SIDE * (_LARGE_SIDE + _PADDING) <= _SQUARE_BYTES
    if many and long and fits and max(*stored, *sizes) == 1:
        return _LARGE_SIDE, lines, "two sectors of bytes"
    if many and long and fits and not whole:
        why = "rows begin within sectors: 4099 x 2001 floats 29 us, of small tiles 40 us"
        return _large_side(facts, along), lines, why
    return _SMALL_SIDE, lines, "8192 x 2048 floats 50.5 us in 32 x 64 elements, of larger tiles 53 us"


def _large_side(facts: Facts, axis: str) -> int:
    """A large side for the tiles along `axis`, or a small one where much of the last large tile would be beyond the
    end: of the dimensions 0, 2, 4, 1, 3 of 61 x 13 x 37 x 11 x 93 bfloat16, 143 elements by 93, 66.9 us on an H200 in
    tiles of 64 x 64, 46.6 us in 32 x 64, 45.7 us in 32 x 32."""
    extent = facts.hints[axis]
    large, small = (-(-extent // side) * side for side in (_LARGE_SIDE, _SMALL_SIDE))
    return _LARGE_SIDE if large <= _BEYOND * small else _SMALL_SIDE


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Transposed operands are read along their own memory, and lie in padded shared memory so that reading them across
    it meets no bank twice. Of 16-bit numbers a thread stores two at a time.
    """
    found: list[Step] = []
    tiling, parent = kernel.tiling, kernel.parent
    numbers = {loop.axis: loop.name for loop in parent.loops if not is_element(loop)}
    down, along = (numbers[axis] for axis in tiling.inner)
    why = f"each stores 8 elements of a tile of 32 x 64, or of many smaller ones, {_STORED} bytes of single ones"
    size = tiling.side * tiling.lines
    # Of few tiles, which do not fill a GPU, more threads have fewer elements each.
    small = size <= _SMALL_SIDE**2 and parent.points >= _ENOUGH_TILES * _LARGE_SIDE**2
    threads = (64 if size < _SMALL_SIDE**2 else 128) if small else _MOST_THREADS
    if size > _SMALL_SIDE**2 and not are_fixed(parent.loops):
        moved = [stage.bits for stage in kernel.graph.stages if stage.role in (Role.SHARED_TILE, Role.OUTPUT)]
        threads = min(max(size * max(moved) // 8 // _STORED, _FEWEST_THREADS), _MOST_THREADS)
    block, threads = "", kernel.choices.number(THREADS, threads, why)
    for stage in kernel.outputs:
        block = _output(found, kernel, stage, down, along, threads)
        if stage is not parent:
            found.append(ComputeWith(stage.name, parent.name, "line"))
    for stage in kernel.graph.stages:
        elements = [loop.name for loop in stage.loops if is_element(loop)]
        if stage.role is Role.SHARED_TILE:
            place = ComputeAt(stage.name, parent.name, block)
            found += _tile(kernel, stage, place, down, along, threads)
        elif stage.role in (Role.STAGED_LOAD, Role.PACKED):
            found += [ComputeAt(stage.name, parent.name, "line"), *(Unroll(stage.name, name) for name in elements)]
    return tuple(found)


def _output(found: list[Step], kernel: TiledKernel, stage: Stage, down: str, along: str, threads: int) -> str:
    """Give tiles of `stage` to blocks; returns the loop over blocks."""
    side, lines = kernel.tiling.side, kernel.tiling.lines
    words = [loop.name for loop in stage.loops if loop.kind is LoopKind.WORD]
    rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *words)]
    found += [
        Split(stage.name, along, "along", "i", side),
        Split(stage.name, down, "down", "part", lines),
        Split(stage.name, "part", "line", "y", threads // side),
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
    found.append(Fuse(stage.name, "along", "down", "tile"))
    block = "tile"
    for number, name in enumerate(rest):
        found.append(Fuse(stage.name, block, name, f"tile{number}"))
        block = f"tile{number}"
    found.append(GpuBlocks(stage.name, (block,)))
    return block


def _tile(kernel: TiledKernel, stage: Stage, place: ComputeAt, down: str, along: str, threads: int) -> list[Step]:
    """Load the tile of a transposed operand at `place`."""
    tiling = kernel.tiling
    padding = 1 if tiling.chunk else max(1, 32 // stage.bits)
    padding = kernel.choices.number(
        PADDING, padding, "a word: neighbours in a column are in other banks", at=stage.name
    )
    # The threads of a warp read what is adjacent, also where fewer of them write a line.
    lanes = max(tiling.side, WARP)
    elements = [loop.name for loop in stage.loops if is_element(loop)]
    rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *elements)]
    sides = {along: tiling.side, down: tiling.lines}
    computed = [loop.name for loop in stage.loops if loop.name in sides and not loop.fixed]
    # Halide finds out of one or two others that a block has one point of them, not of three.
    beside = [loop for loop in stage.loops if loop.name in rest and not loop.fixed] if len(rest) > 2 else []
    # Whichever of the two axes lies innermost: both are walked along by the lanes of a warp.
    inner = next(loop.name for loop in stage.loops if loop.name in sides)
    return [
        place,
        # Of dynamic extent Halide loses the bounds of a fused loop.
        *(BoundExtent(stage.name, name, sides[name]) for name in computed),
        *(BoundExtent(stage.name, loop.name, 1) for loop in beside),
        StoreIn(stage.name, "GPUShared"),
        AlignStorage(stage.name, inner, sides[inner] + padding),
        # Halide 21 computes half of a stage whose loop is called "s".
        Split(stage.name, along, "line", "y", threads // lanes),
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


RULE = Rule("shared_transposes", tile, steps)
