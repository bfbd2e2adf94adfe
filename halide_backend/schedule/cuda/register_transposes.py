"""Transposes on CUDA in registers: a thread has a tile of whole vectors along both axes."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.program.access import VECTOR, WORD
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Load
from halide_backend.program.strided_loads import transposed_axes
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.register_lines import MOST_ELEMENTS
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, is_element, load_words, unroll_chunk
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.vector_access import VectorAccess
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
    Unroll,
)
from halide_backend.schedule.tiling import WARP, Tiling, TilingKind

APPLIES = Knob("register_transposes.applies", (False, True), "threads transpose in registers, not in shared memory")
THREADS = Knob("register_transposes.threads", (64, 128, 256), "threads of a block")
ALONG = Knob("register_transposes.along", (4, 8, 16, 32), "adjacent threads that store what is adjacent")

#: Threads that keep enough loads in flight where each transposes a tile of whole vectors in its registers (128 bytes
#: of each are as much as an H200 needs for its bandwidth), and the least sides of a tile: of 4 x 4 floats half of a
#: line's memory is another thread's (measured: 8192 x 2048 floats 53.5 us, through shared memory 50.9 us).
_FEWEST_TILES, _LEAST_SIDE = 1 << 15, 8

#: Vectors of the stored axis that adjacent threads store side by side: a sector is two of them.
_FEWEST_VECTORS = 4

#: Adjacent threads along the stored axis, of a kernel with one operand and with several, and vectors of a sector
#: (measured: permutations of 8192 x 4096 bfloat16 on an H200, 2130 42.5 us with 8 and 38.0 us with 4, 3210 44.5 and
#: 40.5, 0231 38.8 and 37.8; but transpose_add 54.6 and 57.6; permute_210 on an H100, whose rows of 16,368 bytes begin
#: within sectors, 72.7 us with 8, 64.3 us with 16, 59.3 us with 32).
_LANES, _LANES_OF_SEVERAL, _SECTOR = 4, 8, 2


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """A vector of elements of each axis for every thread, where all that it reads and stores are vectors."""
    axes = transposed_axes(facts.program)
    if axes is None:
        return None
    # Of bytes half vectors: with whole ones a tile would have 256 elements.
    lines, elements = (min(facts.chunk_elements(name), _LEAST_SIDE) for name in axes)
    short = _is_short(facts, axes, elements)
    if short:
        lines = next(count for count in (max(1, elements // _FEWEST_VECTORS), 1) if facts.divides(count, axes[0]))
    tiling = Tiling(TilingKind.REGISTER_TRANSPOSE, facts.outer, axes, axes[1], elements, lines=lines)
    if short and lines == _SECTOR:
        tiling = replace(tiling, alternate=_alternate(facts, axes, elements))
    size = elements * lines
    # Halide loses the bounds of a fused loop where outputs are computed together.
    if len(facts.program.stores) > 1 or size > MOST_ELEMENTS or not _moves_vectors(facts, tiling, short):
        return None
    tiles = math.prod(facts.hints[name] for name in facts.outer) // size
    if short:
        why = "the stored axis ends after a few vectors, and memory goes on along the one that is read along"
        applies = choices.flag(APPLIES, tiles >= _FEWEST_TILES, why)
    elif min(lines, elements) < _LEAST_SIDE:
        why = (
            f"{lines} x {elements} elements are less than whole sectors; 8192 x 2048 floats take 53.5 us, else 50.9 us"
        )
        applies = choices.flag(APPLIES, False, why)
    elif _begins_within_sectors(facts, axes[1], elements):
        why = "rows of 16 bits begin within sectors: 36864 x 1000 bfloat16 56.0 us, through shared memory 45.3 us"
        applies = choices.flag(APPLIES, False, why)
    else:
        why = f"{tiles} threads; {_FEWEST_TILES} keep enough loads in flight"
        applies = choices.flag(APPLIES, tiles >= _FEWEST_TILES, why)
    return tiling if applies else None


def _begins_within_sectors(facts: Facts, along: str, elements: int) -> bool:
    """Whether rows that are stored are an odd number of vectors (of half ones of bytes several are no worse)."""
    extent, bits = facts.extents[along], {ELEMENT[buffer.dtype][1] for buffer in facts.program.outputs}
    return isinstance(extent, int) and extent // elements % _SECTOR != 0 and bits == {VECTOR // elements}


def _is_short(facts: Facts, axes: tuple[str, str], elements: int) -> bool:
    """Whether the stored axis has but a few vectors, and what is stored goes on along the axis that is read along:
    threads with whole vectors of both would each store a line of memory, a vector at a time."""
    across, along = axes
    layouts = [layout.variables for layout in facts.layouts.values()]
    adjoining = all(variables[:2] == (along, across) for variables in layouts)
    return adjoining and facts.hints[along] < _FEWEST_VECTORS * elements


def _alternate(facts: Facts, axes: tuple[str, str], elements: int) -> bool:
    """Whether each of a thread's two lines is a vector, half of a sector of memory, and lines go on in whole warps, so
    that neighbouring threads can swap one of them (8192 x 4096 bfloat16 on an H200: 38.1 us, swapped 34.8 us)."""
    across, along = axes
    vectors = {ELEMENT[buffer.dtype][1] * elements for buffer in facts.program.outputs} == {VECTOR}
    fixed = not facts.is_dynamic(along) and not facts.is_dynamic(across)
    return vectors and fixed and facts.hints[along] == elements and facts.divides(2 * WARP, across)


def _moves_vectors(facts: Facts, tiling: Tiling, short: bool) -> bool:
    """Whether each thread reads and stores its tile only in vectors, half ones of bytes, or reads it in words if the
    stored axis is `short`; what all elements of a line have in common may be a number for each."""
    values = facts.program.values
    loads = [k for k, v in enumerate(values) if isinstance(v.attribute, Load) and not v.axes.isdisjoint(tiling.cuts)]
    moved = [values[position].dtype for position in loads] + [buffer.dtype for buffer in facts.program.outputs]
    access = VectorAccess(facts.program, tiling)
    words = min(VECTOR, tiling.elements * min(ELEMENT[dtype][1] for dtype in moved)) // WORD
    for position in loads:
        load = access.loads.get(position)
        if load is None and tiling.chunk not in values[position].axes:
            continue
        if load is None or (load.unit < words and not short):
            return False
    stored = [access.of_output(facts.layouts[buffer.name], buffer) for buffer in facts.program.outputs]
    return words > 0 and all(count and count % words == 0 for count in stored)


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Every thread reads vectors along one axis, and gathers and stores vectors along the other."""
    found: list[Step] = []
    output = kernel.parent
    tiles = [loop for loop in output.loops if loop.kind is LoopKind.AXIS]
    pair = next(loop for loop in tiles if loop.axis == kernel.tiling.inner[0])
    if kernel.tiling.alternate:
        tiles.remove(pair)
    across, along = (next(loop for loop in tiles if loop.axis == axis) for axis in kernel.tiling.inner)
    threads, reason = 128, "as of pointwise kernels"
    stored = output.bits * math.prod(loop.extent for loop in output.loops if loop.kind is LoopKind.WORD)
    lanes = _LANES * max(1, VECTOR // stored)
    why = "a warp stores runs of 64 bytes, and reads lines of 128"
    if sum(stage.role is Role.STAGED_LOAD for stage in kernel.graph.stages) > 1:
        lanes, why = _LANES_OF_SEVERAL, "what is not transposed is read as it is stored, in runs of 128 bytes"
    if along.fixed and along.extent % _SECTOR:
        threads, reason = 256, "each line of them stores 64 elements"
        lanes, why = WARP, "rows begin within sectors, of which a warp shares one or two with others, not eight"
    if kernel.tiling.lines == 1:
        threads, reason = 256, "900 x 64 x 8 x 72 floats to rows of 8: 70.9 us, with 128 threads 75.4 us"
    threads = kernel.choices.number(THREADS, threads, reason)
    lanes = kernel.choices.number(ALONG, lanes, why)
    others = [loop for loop in tiles if loop not in (across, along)]
    following = others[0] if others else None
    # Threads along an axis beyond the one that is read along would each begin elsewhere in memory: they come last.
    near = following is not None and tiles.index(following) < tiles.index(across)
    short = kernel.tiling.lines * _FEWEST_VECTORS <= kernel.tiling.elements
    further = following.extent if (near or short) and following is not None else 1
    if short and not near:
        width, height = _power(along.extent), min(threads // _power(along.extent), _power(across.extent))
        if kernel.tiling.alternate:
            # Whole warps, of which all lanes take part: two threads of each of so many pairs.
            height = math.gcd(threads, 2 * across.extent)
        further = min(threads // (width * height), _power(further))
    else:
        width, further, height = _threads(threads, lanes, along.extent, further, across.extent)
    within = unroll_chunk(found, output.name, output.loops)
    found.append(Split(output.name, along.name, "along", "i", width))
    if kernel.tiling.alternate:
        found.append(Split(output.name, across.name, "across", "pairs", height // 2))
        found.append(Fuse(output.name, pair.name, "pairs", "j"))
    else:
        found.append(Split(output.name, across.name, "across", "j", height))
    own, outer = ["i", "j"], ["across", "along"]
    if following is not None and further > 1:
        found.append(Split(output.name, following.name, "following", "h", further))
        own.insert(1 if near else 2, "h")
        outer.append("following")
        others = others[1:]
    outer += [loop.name for loop in others]
    found += [Reorder(output.name, (*within, *own, *outer)), GpuThreads(output.name, tuple(own))]
    block = "across"
    for number, name in enumerate(outer[1:]):
        found.append(Fuse(output.name, block, name, f"block{number}"))
        block = f"block{number}"
    # LLVM would merge the versions of inner and last blocks again, and break up vectors that both load.
    found += [GpuBlocks(output.name, (block,)), NeverPartition(output.name, block)]
    for stage in kernel.graph.stages:
        if stage.role is Role.PACKED and short:
            # Halide would take every second word of a vector, and LLVM keep the words in memory for it.
            words = [loop.name for loop in stage.loops if is_element(loop)]
            found += [ComputeAt(stage.name, output.name, "i"), *(Unroll(stage.name, name) for name in words)]
        elif stage.role in (Role.STAGED_LOAD, Role.PACKED):
            load_words(found, stage, ComputeAt(stage.name, output.name, "i"))
    return tuple(found)


def _threads(threads: int, lanes: int, along: int, following: int, across: int) -> tuple[int, int, int]:
    """How many of the `threads` of a block lie along each of three loops of these extents: the stored axis, the one
    that adjacent memory goes on along where the stored axis ends, and the axis that is read along. The first two have
    `lanes` together."""
    width = min(lanes, _power(along))
    further = min(lanes // width, _power(following))
    height = _power(across)
    if width * further * height < WARP:
        # What is read along ends before a warp has its threads: of 4,194,304 rows of 8 a block of 128 had four. Of rows
        # of several vectors a warp reads all, so that it leaves no half of a sector to another one.
        threads = threads if height == 1 or further > 1 else WARP
        return min(threads // (further * height), _power(along)), further, height
    return width, further, min(threads // (width * further), height) if further > 1 else threads // width


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()


RULE = Rule("register_transposes", tile, steps)
