"""Pointwise kernels on CUDA: every thread computes a chunk of adjacent points, or several."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.program.access import VECTOR as VECTOR_BITS
from halide_backend.program.access import WORD, is_contiguous
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol, axes_of, expanded, sizes_of
from halide_backend.program.loop_program import Load
from halide_backend.program.strided_loads import rows_as_columns
from halide_backend.schedule.cuda import points_across
from halide_backend.schedule.cuda.alone import PART, POINT, THREAD, compute_together, give_to_threads
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.line_ends import may_be_short
from halide_backend.schedule.cuda.points_across import (
    BLOCK_OF_SINGLES,
    ENOUGH_WAVES,
    MOST_LOADS,
    ROWS,
    shared_indices,
    shared_rows,
    with_shared_places,
    word_elements,
)
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, are_fixed, is_element, load_words, unroll_chunk
from halide_backend.schedule.device import Gpu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.chunks import accesses, adjacent_bytes, chunk_elements
from halide_backend.schedule.mapping.vector_access import VectorAccess
from halide_backend.schedule.stage import LoopKind, Role, Stage
from halide_backend.schedule.steps import Bound, ComputeAt, Step, Unroll
from halide_backend.schedule.tiling import Tiling, TilingKind

ELEMENTS = Knob("pointwise.elements", (1, 2, 4, 8, 16), "adjacent elements that a thread loads and stores at a time")
THREADS = Knob("pointwise.threads", (32, 64, 128, 256, 512, 1024), "threads of a block")
PARTS = Knob("pointwise.steps", (1, 2, 4, 8), "iterations of a thread, all unrolled, each for its adjacent elements")

#: Bytes of the widest memory instruction.
VECTOR = VECTOR_BITS // 8

#: Elements from one that a thread reads to the next up to which it reads the vectors that hold them.
_MOST_STEPS = 4

#: The same from which on elements are loaded on their own: of fewer there are vectors that hold them.
_APART = 3

#: Axes that a thread stores along, one output along each, from which on their memory is apart.
_LONG = 32

#: Elements of a thread whose store has steps between them: each is an instruction of its own, in which neighbouring
#: threads are as far apart as all of them (measured on an H200: pixel_shuffle of 8192 x 4096 bfloat16 52.9 us with 4,
#: 40.6 us with 2, 42.7 us with 1).
_STEPPED = 2

#: CUDA's limit of every block.
_MOST_THREADS = 1024

#: Threads of a block whose threads do not cooperate (measured: gelu of 2**24 bfloat16 21.9 us with 128, 23.0 with 256).
BLOCK = 128

#: Bytes that a thread stores at least, in at most MOST_PARTS iterations: an H200 starts 1,600 blocks in a
#: microsecond, whatever they do (measured: 65,472 blocks that store 4 bytes a thread 41.6 us, 117,247 that store 16
#: bytes 72.4 us). Of single elements with others between them a VECTOR is enough (stack of two of 7936 x 4224 bfloat16
#: 81.8 us with 32 bytes, 76.8 us with 16; pixel_shuffle of 340 x 32 x 52 x 52 37.6 and 34.5 us).
THREAD_BYTES, MOST_PARTS = 32, 8

#: Bytes of a thread that loads nothing: zeros of 30,522 x 128 floats, and additions to some, on an H200 7.93 us with
#: 16, 7.47 us with 32, 6.93 us with 64.
_FILLED = 64

#: Waves of threads that are enough of what is copied as it is, during which a thread has nothing else to do (measured
#: on an H200, operands in the cache: heads of 16 x 384 x 12 x 64 bfloat16 put in front 4.5 us, in two steps 4.1 us, of
#: 4 x 1024 x 16 x 64 4.0 and 3.4 us; but a GELU of 8 x 512 x 8 x 64 3.7 and 4.1 us).
_COPYING_WAVES = 1 / 3


def tile(facts: Facts, choices: Choices) -> Tiling:
    """Chunks of the axis along which memory is adjacent, if every store runs along it; this rule is for all that no
    other one is for."""
    tiling, along = Tiling(TilingKind.THREAD, facts.outer), facts.stored_along
    if facts.recurs or along not in facts.outer:
        return tiling
    program = facts.program
    if (shared := shared_indices(facts, choices, along) or shared_rows(facts, choices, along)) is not None:
        return shared
    if (rows := rows_as_columns(facts.program)) is not None and facts.hints[rows[0]] in ROWS:
        loads = [value.dtype for value in program.values if isinstance(value.attribute, Load)]
        read = WORD // max(WORD // 4, *(ELEMENT[dtype][1] for dtype in loads)) if loads else 1
        if (whole_rows := _whole_rows(facts, choices, *rows, read)) is not None:
            return whole_rows
    whole = facts.chunk_elements(along, pairs=True)
    # The last chunk of an axis may be short only if it is one vector of the widest numbers.
    vector = min(chunk_elements(program, along, 0), VECTOR // max(adjacent_bytes(program, along)))
    if whole < vector and (short_rows := _short_rows(facts, choices, along, whole)) is not None:
        return short_rows
    long = facts.is_dynamic(along) or facts.hints[along] > vector
    ends_within = long and may_be_short(program, along, vector)
    if vector > whole and ends_within:
        elements = choices.number(ELEMENTS, vector, "one vector of the widest numbers; the last one may be short")
    elif whole > 1:
        elements, why = _coalesced(facts, along, whole)
        if elements > _STEPPED and _stored_with_steps(facts, along, elements):
            elements, why = _STEPPED, "each is stored on its own, and neighbouring threads are as far apart as all"
        if elements > (word := word_elements(program)) and _loads_elements(facts, tiling, along, elements):
            elements, why = word, "each is loaded on its own, and neighbouring threads are as far apart as all"
        elements = choices.number(ELEMENTS, elements, why)
    else:
        elements = choices.number(ELEMENTS, 1, "no more divide the axis along which memory is adjacent")
    short = not facts.divides(elements, along)
    possible = not short or (ends_within and elements == vector)
    choices.require(ELEMENTS, possible, f"{elements} elements do not divide the axis along which memory is adjacent")
    tiling = replace(tiling, chunk=along, elements=elements, short=short) if elements > 1 else tiling
    return tiling if short else with_shared_places(facts, choices, along, tiling)


def _short_rows(facts: Facts, choices: Choices, along: str, whole: int) -> Tiling | None:
    """All of a row for a thread, or of as many as make words, where rows are stored as columns, and are longer than the
    `whole` elements of their chunks: threads that store one chunk after another read all rows for each (8,388,608 rows
    of 3 floats on an H200: 97.9 us, all of a row 55.2 us)."""
    stores = [store.index for store in facts.program.stores]
    beside = [name for name in facts.outer if name != along and all(is_contiguous(index, name) for index in stores)]
    known = not facts.is_dynamic(along) and facts.hints[along] in ROWS
    if len(stores) > 1 or not known or facts.hints[along] <= whole or not beside:
        return None
    return _whole_rows(facts, choices, along, beside[0])


def _whole_rows(facts: Facts, choices: Choices, row: str, column: str, read: int = 1) -> Tiling | None:
    """All along the axis `row` for a thread, which stores a word along the axis `column` of each, or as many elements
    as it can `read` in a word."""
    count = choices.number(
        points_across.ACROSS, facts.hints[row], "all of a row, of which a thread reads what is adjacent"
    )
    choices.require(points_across.ACROSS, facts.divides(count, row), f"{count} points do not divide the axis {row}")
    if count == 1:
        return None
    word, why = max(word_elements(facts.program), read), "a word of each column, or of what is read"
    word = choices.number(ELEMENTS, word if facts.divides(word, column) else 1, why)
    choices.require(ELEMENTS, facts.divides(word, column), f"{word} elements do not divide the axis {column}")
    tiling = Tiling(TilingKind.THREAD, facts.outer, lines=count, across=row, threads=BLOCK_OF_SINGLES)
    return replace(tiling, chunk=column, elements=word) if word > 1 else tiling


def _stored_with_steps(facts: Facts, along: str, elements: int) -> bool:
    """Whether a store of `elements` along the axis has steps between them that neighbouring threads do not fill: a
    thread that has all of the axis is next to the one that stores what is adjacent in memory."""
    stores = [store.index for store in facts.program.stores]
    others = [name for name in facts.outer if name != along]
    beside = facts.extents[along] == elements and any(all(is_contiguous(i, name) for i in stores) for name in others)
    return not beside and not all(is_contiguous(index, along) for index in stores)


def _loads_elements(facts: Facts, tiling: Tiling, along: str, elements: int) -> bool:
    """Whether most of what is read along the axis begins nobody knows where, so that no load is of words (a sum of
    40 parts of rows: 27.4 us with 4 elements of bfloat16, 22.4 us with 2): since the length of rows is not known, or,
    if a word has several elements, since rows begin at any element, or since what is read next is `_APART` or more
    elements further on, as where windows of an average do not overlap."""
    words = VectorAccess(facts.program, replace(tiling, chunk=along, elements=elements)).loads
    values = list(enumerate(facts.program.values))
    loads = {k: value.attribute for k, value in values if isinstance(value.attribute, Load)}
    adjacent = [k for k, load in loads.items() if is_contiguous(load.index, along)]
    several = word_elements(facts.program) > 1
    if facts.is_dynamic(along) and not adjacent and any(value.operation == "indirect" for _, value in values):
        return not loads.keys() & words.keys()  # At computed places.
    steps = {k: expanded(load.index).coeff(AxisSymbol(along)) for k, load in loads.items() if k not in words}
    apart = [k for k, step in steps.items() if step.is_Integer and step >= _APART]
    begun = [k for k in adjacent if k not in words and (several or bool(sizes_of(loads[k].index)))]
    return 2 * len(begun + apart) > len(adjacent) + len(apart)


def _coalesced(facts: Facts, along: str, whole: int) -> tuple[int, str]:
    """`whole` elements, or fewer: of numbers of several widths those whose widest are one vector, so that the threads
    of a warp move what is adjacent with each instruction, as long as the narrowest are two words."""
    symbol, steps = AxisSymbol(along), []
    for dtype, index in accesses(facts.program):
        step = expanded(index).coeff(symbol)
        if axes_of(index) == set(facts.outer) and step.is_Integer and 1 <= step <= _MOST_STEPS:
            steps.append((ELEMENT[dtype][1] // 8, int(step) * ELEMENT[dtype][1] // 8))
    elements, why = whole, "one vector of the narrowest numbers, or two words, or one"
    # Bytes are mostly masks beside wider data.
    numbers = [each for each in steps if each[0] > 1] or steps
    narrowest, widest = (choose(each[k] for each in numbers) if steps else 0 for k, choose in enumerate((min, max)))
    while elements * widest > VECTOR and elements * narrowest > VECTOR // 2:
        elements, why = elements // 2, "one vector of the widest numbers; from_bfloat16 stored two, 0.74 of the speed"
    return elements, why


def stored_crosswise(facts: Facts) -> str:
    """An output that is contiguous along another long axis than the first one, so that threads that store adjacent
    elements of one store a sector each of the other; "" if none."""
    layouts = ((name, layout.variables) for name, layout in facts.layouts.items() if not layout.scattered)
    along = {axes[0]: name for name, axes in layouts if axes and facts.hints[axes[0]] >= _LONG}
    return [*along.values()][1] if len(along) > 1 else ""


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Chunks of all outputs by one thread; words are loaded and packed where they are stored."""
    found: list[Step] = []
    threads = _threads(kernel)
    for stage in kernel.outputs:
        give_to_threads(found, kernel, stage, threads, _parts(kernel, stage, threads))
    compute_together(found, kernel)
    parent = kernel.parent
    step = POINT if kernel.tiling.across else PART if _parts(kernel, parent, threads) > 1 else THREAD
    for stage in kernel.graph.stages:
        if stage.role is Role.STAGED_LOAD:
            load_words(found, stage, ComputeAt(stage.name, parent.name, step))
        elif stage.role is Role.PRESERVED:
            found += [ComputeAt(stage.name, parent.name, step)]
            found += [Bound(stage.name, loop.name, 0, loop.extent) for loop in stage.loops if is_element(loop)]
            unroll_chunk(found, stage.name, stage.loops)
        elif stage.role is Role.PACKED:
            found += [ComputeAt(stage.name, parent.name, step), Unroll(stage.name, stage.loops[0].name)]
        found += kernel.narrowed(stage)
    return tuple(found)


def parts_of_a_thread(
    points: int, stored: int, device: Gpu, reads: int = 1, waves: float = ENOUGH_WAVES, least: int = THREAD_BYTES
) -> int:
    """How many of `points` points one thread computes, if each stores `stored` bytes, of which a thread has `least`,
    and has `reads` loads of single elements; `waves` of threads are enough."""
    parts = min(max(1, least // stored), MOST_PARTS)
    enough = waves * device.sms * device.threads
    while parts > 1 and (points < parts * enough or parts * reads > MOST_LOADS):
        parts //= 2
    return parts


def _parts(kernel: TiledKernel, stage: Stage, threads: int) -> int:
    """Steps of a thread that works alone on the output `stage`: several where one would have too few bytes in flight.

    A gather waits for its index; a thread that moves less than a vector, or only stores, is soon done.
    """
    if kernel.tiling.across:
        return 1
    loads = [other for other in kernel.graph.stages if other.role is Role.STAGED_LOAD]
    several = len(kernel.outputs) > 1
    if several and (loads or kernel.has(Role.PACKED) or len(kernel.outer_loops(stage)) > 1):
        return 1
    stored = _stored(stage)
    points = _points(stage)
    stepped = any(loop.kind is LoopKind.ELEMENT for loop in stage.loops)
    fills = _fills(kernel)
    least = VECTOR if stepped or stored * 2 == VECTOR else _FILLED if fills else THREAD_BYTES
    waves = _COPYING_WAVES if fills or _copies(kernel) else ENOUGH_WAVES
    count = parts_of_a_thread(points, stored, kernel.device, stage.reads, waves, least)
    whole = are_fixed(stage.loops) and points % (count * threads) == 0
    if loads and stored >= VECTOR and not any(load.gathers for load in loads) and not whole:
        why = "each step would begin with a branch, and wait for the one before"
        return kernel.choices.number(PARTS, 1, why, at=stage.name)
    why = f"threads enough store {least} bytes each" if count > 1 else "one step stores enough, or keeps threads busy"
    return kernel.choices.number(PARTS, count, why, at=stage.name)


def _copies(kernel: TiledKernel) -> bool:
    """Whether all that is stored are words as they are loaded."""
    packed = [stage for stage in kernel.graph.stages if stage.role is Role.PACKED]
    return bool(packed) and all(kernel.graph[name].role is Role.STAGED_LOAD for stage in packed for name in stage.calls)


def _fills(kernel: TiledKernel) -> bool:
    """Whether what is stored is computed from nothing."""
    values = [stage for stage in kernel.graph.stages if stage.role not in (Role.OUTPUT, Role.PACKED)]
    plain = all(stage.role is Role.INLINE and not stage.calls for stage in values)
    return plain and not any(stage.reads for stage in kernel.outputs)


def _threads(kernel: TiledKernel) -> int:
    """The number of threads of a block."""
    if kernel.tiling.across and kernel.tiling.threads > 1:
        return kernel.choices.number(THREADS, kernel.tiling.threads, "box_blur takes 81 us, with 1,024 threads 83 us")
    if kernel.tiling.across:
        along = kernel.outer_loops(kernel.parent)[0].extent
        threads = min(max(BLOCK_OF_SINGLES, 1 << (along - 1).bit_length()), _MOST_THREADS)
        return kernel.choices.number(THREADS, threads, "a block has the rows that it reads all over to itself")
    if any(stage.reads > 1 and _stored(stage) < VECTOR for stage in kernel.outputs):
        return kernel.choices.number(THREADS, BLOCK_OF_SINGLES, "threads load single elements")
    stored, points = _stored(kernel.parent), _points(kernel.parent)
    busy = points >= 2 * BLOCK_OF_SINGLES * kernel.device.sms
    if stored <= WORD // 8 and busy and parts_of_a_thread(points, stored, kernel.device) == 1:
        why = "padding 2 x 64 x 56 x 56 floats takes 3.63 us with 128: blocks of one step end as fast as others start"
        return kernel.choices.number(THREADS, BLOCK_OF_SINGLES, why)
    return kernel.choices.number(THREADS, BLOCK, "gelu of 2**24 bfloat16 takes 21.9 us, with 256 threads 23.0 us")


def _stored(stage: Stage) -> int:
    """Bytes that one step of a thread stores."""
    elements = math.prod(loop.extent for loop in stage.loops if is_element(loop))
    return elements * max(stage.bits, 8) // 8


def _points(stage: Stage) -> int:
    """Steps of all threads."""
    return stage.points * max(stage.bits, 8) // 8 // _stored(stage)


RULE = Rule("pointwise", tile, steps)
