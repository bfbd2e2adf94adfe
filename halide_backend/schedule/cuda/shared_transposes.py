"""Transposes on CUDA through shared memory: a block has a tile of both axes."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.build.target import SHARED_BYTES
from halide_backend.program.access import WORD as WORD_BITS
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

ELEMENTS = Knob("shared_transposes.elements", (1, 2, 4), "adjacent numbers that a thread stores as a word")
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
#: are too many (dimensions 2, 0, 3, 1 of 577 x 61 x 7 x 131 bfloat16 50.8 us, with 32 lines 47.2 us). Of words 128 to
#: 96 are not, but twice as many are.
_BEYOND, _BEYOND_OF_WORDS = 1.15, 1.5

#: Bytes of shared memory that large tiles may have.
_SQUARE_BYTES = 40 << 10

#: Bytes that a thread stores of a large tile of unknown sizes, and threads of a block (measured on an H200: the
#: channels of 334 x 32 x 56 x 56 bytes to the last dimension 38.1 us with 256 threads, 28.4 us with 64; of bfloat16
#: 45.5 us with 256, 41.0 us with 128; of floats 68.5 us with 256, 69.9 us with 128).
_STORED, _FEWEST_THREADS, _MOST_THREADS = 32, 64, 256

#: Steps of a tile that a thread has at least where there are many.
_STEPS = 8

#: Elements by which a line of a tile in shared memory is longer than the tile, at most.
_PADDING = 8

PADDING = Knob("shared_transposes.padding", (0, 1, 2, 4), "elements between the lines of a tile in shared memory")


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Tiles of single elements, or of words if all that is stored has the same few bits and words fill their tiles."""
    axes = transposed_axes(facts.program)
    if axes is None:
        return None
    across, along = axes
    tiling = Tiling(TilingKind.SHARED_TRANSPOSE, facts.outer, axes)
    side, lines, why = _sides(facts, axes)
    word, words = _words(facts, along)
    elements = choices.number(ELEMENTS, word, "a word takes one instruction") if words else 1
    choices.require(ELEMENTS, elements in (1, word), f"{elements} elements of what is stored are no word")
    if elements > 1:
        tiling = replace(tiling, chunk=along, elements=elements)
        side, why = words, "all words of a line of the tile, or as many as fill their tiles"
        lines = _lines(facts, across, _LARGE_SIDE if facts.hints[across] > _SMALL_SIDE else _SMALL_SIDE)
    side = choices.number(SIDE, side, why)
    lines = choices.number(LINES, lines, f"tiles of {_LARGE_SIDE} where there are {_ENOUGH_TILES} of them, or pairs")
    stored = sum(facts.transposed_bytes) * elements * max((side + _PADDING) * lines, side * (lines + _PADDING))
    choices.require(SIDE, stored <= SHARED_BYTES, f"tiles of {stored} bytes; shared memory has {SHARED_BYTES}")
    tiling = replace(tiling, side=side, lines=lines)
    choices.require(SIDE, side == _lanes(tiling) or not _have_a_plane(facts), "outputs share two dimensions of threads")
    return tiling


def _have_a_plane(facts: Facts) -> bool:
    """Whether the threads of a block have two dimensions, the same ones for all stages, so that a tile's sides are
    whole warps: Halide loses the bounds of a fused loop where outputs are computed together."""
    return len(facts.program.outputs) > 1


def _words(facts: Facts, along: str) -> tuple[int, int]:
    """Elements of a word, where all that is stored has the same few bits an element, and words of a tile's side: all
    along a short axis, or 32 or 16 of a longer one; 0 if they do not fill their tiles."""
    (bits, *others) = {ELEMENT[buffer.dtype][1] for buffer in facts.program.outputs}
    word, extent = WORD_BITS // bits, facts.extents[along]
    if others or word < 2:
        return 1, 0
    if isinstance(extent, int) and extent % word == 0 and extent // word <= _SMALL_SIDE:
        sides = [extent // word]
    else:
        sides = [side for side in (_SMALL_SIDE, _SMALL_SIDE // 2) if facts.divides(word * side, along)]
    return word, next((side for side in sides if side % WARP == 0 or not _have_a_plane(facts)), 0)


def _sides(facts: Facts, axes: tuple[str, str]) -> tuple[int, int, str]:
    """Side and lines of a tile of single elements, and why the side."""
    sizes, (across, along) = facts.transposed_bytes, axes
    narrow = not _have_a_plane(facts)
    if narrow and facts.is_dynamic(along) and facts.hints[along] <= _NARROW_SIDES[-1]:
        side = next(side for side in _NARROW_SIDES if facts.hints[along] <= side)
        return side, _LARGE_SIDE, "more would typically be beyond the end of the axis that is written along"
    stored = [ELEMENT[buffer.dtype][1] // 8 for buffer in facts.program.outputs]
    whole = all(facts.divides_bytes(_SECTOR, across, size) for size in sizes)
    # A small tile's side of 16-bit elements is two sectors, of which rows that begin within sectors fill one.
    whole = whole and (max(stored) > 2 or facts.divides_bytes(_SECTOR, along, max(stored)))
    counts = (-(-facts.hints[name] // (_LARGE_SIDE if name in axes else 1)) for name in facts.outer)
    many = math.prod(counts) >= _ENOUGH_TILES
    lines = _lines(facts, across, _large_side(facts, across) if many else _SMALL_SIDE)
    if narrow and not facts.is_dynamic(along) and facts.hints[along] < _SMALL_SIDE:
        return facts.hints[along], lines, "all of the axis that is written along"
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
    end, of words nearly all of it: of the dimensions 0, 2, 4, 1, 3 of 57 x 13 x 37 x 11 x 93, 143 elements by 93,
    bfloat16 takes 63.9 us on an H200 in tiles of 64 x 64, 45.8 us in 32 x 32, but float32 69.9 us and 94.4 us."""
    extent = facts.hints[axis]
    large, small = (-(-extent // side) * side for side in (_LARGE_SIDE, _SMALL_SIDE))
    return _SMALL_SIDE if large > (_BEYOND if _are_narrow(facts) else _BEYOND_OF_WORDS) * small else _LARGE_SIDE


def _lines(facts: Facts, axis: str, lines: int) -> int:
    """So many lines, or of narrow elements all, if they are fewer and more than a small tile's: the threads that read
    them read what is there, instead of the last one again (the dimensions 0, 3, 2, 1 of 590 x 59 x 7 x 35 bfloat16 on
    an H200: 15.9 us with 64 lines, 14.1 us with 35; float32 does not care)."""
    extent = facts.extents[axis]
    known = isinstance(extent, int) and not _have_a_plane(facts)
    return extent if known and _SMALL_SIDE < extent < lines and _are_narrow(facts) else lines


def _are_narrow(facts: Facts) -> bool:
    """Whether all that is stored has fewer bits than a word."""
    return all(ELEMENT[buffer.dtype][1] < WORD_BITS for buffer in facts.program.outputs)


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
    many = parent.points >= _ENOUGH_TILES * _LARGE_SIDE**2
    threads = (
        min(max(1 << (size // _STEPS).bit_length() - 1, _FEWEST_THREADS), _MOST_THREADS) if many else _MOST_THREADS
    )
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
        Split(stage.name, "part", "line", "y", _at_once(lines, threads // side)),
        Reorder(stage.name, (*words, "line", "i", "y", "along", "down", *rest)),
        *_threads(stage, kernel.tiling),
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
    elements = [loop.name for loop in stage.loops if is_element(loop)]
    rest = [loop.name for loop in stage.loops if loop.name not in (down, along, *elements)]
    sides = {along: tiling.side, down: tiling.lines}
    lanes = _lanes(tiling)
    at_once = _at_once(tiling.side, threads // lanes)
    even = tiling.lines % _at_once(tiling.lines, threads // tiling.side) == 0 and tiling.side % at_once == 0
    fused = lanes != tiling.side and even
    computed = [loop.name for loop in stage.loops if loop.name in sides and (fused or not loop.fixed)]
    # Halide finds out of one or two others that a block has one point of them, not of three.
    beside = [loop for loop in stage.loops if loop.name in rest and not loop.fixed] if len(rest) > 2 else []
    # Whichever of the two axes lies innermost: both are walked along by the lanes of a warp.
    inner = next(loop.name for loop in stage.loops if loop.name in sides)
    step = stage.bits * (tiling.elements if inner == along else 1)
    words = -(-sides[inner] * step // WORD_BITS) | 1
    padding = max(words * WORD_BITS // step, sides[inner]) - sides[inner]
    why = "an odd number of words: neighbours in a column are in other banks"
    padding = kernel.choices.number(PADDING, padding, why, at=stage.name)
    return [
        place,
        # Halide loses the bounds of a fused loop, and guards each load by a branch, so that they wait for one another.
        *(BoundExtent(stage.name, name, sides[name]) for name in computed),
        *(BoundExtent(stage.name, loop.name, 1) for loop in beside),
        StoreIn(stage.name, "GPUShared"),
        AlignStorage(stage.name, inner, sides[inner] + padding),
        # Halide 21 computes half of a stage whose loop is called "s".
        Split(stage.name, along, "line", "y", at_once),
        Split(stage.name, down, "half", "i", lanes),
        Reorder(stage.name, (*elements, "half", "line", "i", "y", *rest)),
        *(Unroll(stage.name, name) for name in (*elements, "half", "line")),
        *_threads(stage, tiling),
    ]


def _lanes(tiling: Tiling) -> int:
    """Adjacent threads that read what is adjacent: those that write a line, or whole warps where fewer do; all lines
    where they are no whole warps."""
    return tiling.lines if tiling.lines % WARP else max(tiling.side, WARP)


def _at_once(steps: int, most: int) -> int:
    """How many of so many steps the threads of a block take at a time: `most`, or nearly as many or a few more, if all
    steps are a multiple of them."""
    near = sorted(range(most // 2 + 1, most + most // 2 + 1), key=lambda count: abs(count - most))
    return next((count for count in near if steps % count == 0), most)


def _threads(stage: Stage, tiling: Tiling) -> tuple[Step, ...]:
    """Two dimensions of threads, or one where the stages of a block have different ones: its bounds take branches."""
    if tiling.side == _lanes(tiling):
        return (GpuThreads(stage.name, ("i", "y")),)
    return Fuse(stage.name, "i", "y", "thread"), GpuThreads(stage.name, ("thread",))


RULE = Rule("shared_transposes", tile, steps)
