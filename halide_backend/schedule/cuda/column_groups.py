"""Reductions over an outer axis on CUDA by a block: it has some adjacent columns, and several threads for each."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.build.target import SHARED_BYTES
from halide_backend.schedule.cuda.column_reductions import MOST_POINTS
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.grid import blocks, fits_grid, grid, innermost
from halide_backend.schedule.cuda.lines import is_computed
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, is_element, load_words, unroll_chunk
from halide_backend.schedule.cuda.unrolling import divisor, unroll
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.materialise import EXPENSIVE
from halide_backend.schedule.mapping.tuples import gpu_tuples
from halide_backend.schedule.stage import Loop, LoopKind, Role, Stage
from halide_backend.schedule.steps import (
    Bound,
    BoundExtent,
    ComputeAt,
    ComputeWith,
    GpuThreads,
    Reorder,
    Split,
    Step,
    StoreIn,
    Unroll,
)
from halide_backend.schedule.tiling import THREAD, WARP, Tiling, TilingKind

APPLIES = Knob("column_groups.applies", (False, True), "several threads share a column")
COLUMNS = Knob("column_groups.columns", (4, 8, 16, 32, 64), "adjacent columns of a block")
WIDTH = Knob("column_groups.width", (1, 2, 4, 8), "adjacent columns of a thread")
THREADS = Knob("column_groups.threads", (8, 16, 32, 64, 128), "threads of a column")
UNROLL = Knob("column_groups.unroll", (1, 4, 8, 16), "unroll factor of a thread's loop")
ELEMENTS = Knob("column_groups.elements", (1, 2, 4, 8), "elements that a thread loads along a column at a time")

#: Columns that fill a sector of memory with 32-bit numbers, and the fewest of a block.
_SECTOR, _FEWEST_COLUMNS = 8, 4

#: Columns of a block that has several lines of memory, and the part of the columns that may be beyond the end then if
#: places are reduced to as well (measured on an H200: argmax over the middle of 64 x 300 x 1000 floats 46.6 us with 8
#: columns, which divide 1,000, 37.3 us with 32, of bfloat16 37.4 and 28.2 us).
_MOST_COLUMNS, _BEYOND = 32, 16

#: Threads of a block unless columns are short, the same where SMs have so many blocks or more and a column has places
#: or points of unknown number, and the steps that each has at least (measured on an H200: variances of 896 parts of 32
#: columns, of about 1,169 floats each, 115 us with 512 threads, 95 us with 256; statistics of 334 times 32 columns of
#: about 3,136 points 83 and 77 us; but a norm with 3,136 bfloat16 67 and 72 us).
_THREADS, _THREADS_OF_MANY, _MANY, _STEPS = 512, 256, 2, 8

#: Threads of each SM, typically, where a thread loads vectors of adjacent columns, and the most of a column (measured
#: on an H200: means of 215 times 48 columns of 3,136 bfloat16 31.9 us with 32 threads for each of 16 columns, 24.6 us
#: with 128 for each vector of 8, 20.9 us with 64, 21.1 us with 32; of floats 45.4, 47.2, 40.4 and 39.0 us, 35.7 us
#: with 16; of 16 times 256 columns of 784 bfloat16 5.2 us with 64 threads and 128, 5.6 us with 32).
_FILLING, _MOST_OF_VECTOR = 512, 128

#: Points of a column that its second reading, for the place of what the first has found, finds in the cache only if
#: few columns are read at a time (measured on an H200: the largest of 197 points of 256 x 768 floats with their places
#: 110 us with a column for each thread, 63 us with 8 threads for each of 32 columns; but 24 points of 341 x 4096
#: bfloat16 47 and 95 us).
_READ_AGAIN = 128

#: Points of a column from which blocks of few columns have the fewest, and threads of a shorter one at most, or of one
#: whose moments every thread combines (measured on an H200: sums of 1,024 points of 16 columns 2.7 us with 8 of a
#: block, 1.8 us with 4; those of 341 points of 32 columns 1.78 us with 32 threads, 1.56 us with 16; variances of 215
#: times 48 columns of 3,136 bfloat16 50.5 us with 32 threads, 27.4 us with 16, of 16 times 256 columns of 784 13.1 and
#: 5.3 us).
_LONG, _SHORT_THREADS = 512, 16

#: Points of a column from which eight threads have it, and those, of known number, from which they have it of sums if
#: an SM has no more than so many columns (measured on an H200, means over 7 x 7 points, a thread for each and eight: of
#: 512 columns of bfloat16 2.31 and 1.35 us, of 5,120 2.70 and 1.96 us, of floats 2.12 and 1.69 us).
_POINTS, _FEW_POINTS, _FEW_COLUMNS = 64, 48, 40

#: The same of columns whose points take so many loads in all, if they are no fewer than half as many (the sums of the
#: gradients of a layer norm of 394 x 384 floats, of five operands, took 9.8 us on an H200 with 16 threads for each of 8
#: columns, and 5.9 us in two kernels).
_LOADS = 1024

#: Threads of each SM that fill a GPU (see column_reductions.py), and that keep enough loads in flight if each reduces a
#: column of its own, all of them in an unrolled loop: an arg-reduction's has a comparison and a position for each load,
#: a sum of a function or a quotient has what it sums up to compute, and several sums have some of it (the
#: gradient of rotary heads in the tuning trials of an H200, benchmarks/results/h200-2026-11-27b-tuning.jsonl.gz).
_BUSY, _WALKING, _SUMMING, _LOADING = 993, 800, 400, 128

#: How many times as many threads are enough where each loads single elements (measured on an H200, sizes dynamic: sums
#: of 906,000 rows of 37 floats 55.2 us with a thread for each column of 1,000 parts, 46.0 us with 8 and 8 loads in
#: flight, 51.9 us with 16; of bfloat16 47.0, 35.0 and 36.4 us).
_SINGLE = 4

#: Loads that a thread has in flight; its whole share of a column, if that is no more.
_UNROLLED = 16

#: Values of a chunk whose moments are combined: of more of them an outlier costs more digits (program/moments.py).
_CHUNK = 8

#: Chunks, and elements, that a thread has at least of columns that are adjacent in one operand and lie along memory in
#: another (measured on an H200: sums of 128 products of floats 43.6 us with 8 elements, 42.0 us with 16; those of 196
#: products of bfloat16, which are read in pairs, 64.0 us with 12 or 14, 50.2 us with 24 or 26).
_MIXED_STEPS, _MIXED_ELEMENTS = 2, 16

#: CUDA's limit of every block.
_MOST_THREADS = 1024

#: The loop over the columns of a block.
_COLUMN = "x"


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Columns that are adjacent in memory, if only their reductions are stored."""
    columns, along = facts.columns, facts.columns_along
    if facts.mixed_columns is not None and (mixed := _mixed(facts, *facts.mixed_columns, choices)) is not None:
        return mixed
    if columns is None or not along or facts.hints[along] < _FEWEST_COLUMNS:
        return None
    positions = sum(reduction.position is not None for reduction in facts.reductions)
    narrow = min(_SECTOR, 1 << facts.hints[along].bit_length() - 1)
    whole = facts.divides(narrow, along)
    if any(facts.is_dynamic(name) for name in columns.outer) and len(columns.outer) > 1:
        return None
    if not fits_grid([facts.hints[name] for name in columns.outer]):
        return None
    points, number = (math.prod(facts.hints[name] for name in names) for names in (columns.inner, columns.outer))
    # Of unknown numbers of columns each thread loads single elements.
    enough = _enough(facts) * facts.device.sms
    single = is_computed(facts, columns) and facts.is_dynamic(along) and _enough(facts) == _LOADING
    single = single and enough <= number < _SINGLE * enough
    few = number < enough or single or (positions > 0 and points >= _READ_AGAIN)
    plain = not (positions or facts.moments or any(map(facts.is_dynamic, facts.extents)))
    least = _FEW_POINTS if plain and number <= _FEW_COLUMNS * facts.device.sms else _POINTS
    applies = few and least <= points <= MOST_POINTS
    why = "threads that have a column each are enough"
    if applies:
        why = f"{number} threads would have {points} points each"
    if not choices.flag(APPLIES, applies, why):
        return None
    possible = [count for count in (32, 16) if narrow == _SECTOR and (facts.divides(count, along) or not whole)]
    if positions and narrow == _SECTOR and -facts.hints[along] % _MOST_COLUMNS * _BEYOND <= facts.hints[along]:
        possible.append(_MOST_COLUMNS)
    if single and narrow == _SECTOR:
        possible.append(_MOST_COLUMNS)
    if facts.moments:
        possible = [count for count in possible if count < _MOST_COLUMNS]
    wide = [count for count in possible if number // count >= facts.device.sms]
    rule, why = max(wide, default=narrow), "the most that leave a block for each SM"
    if facts.line is not None:
        rule, why = narrow, "some loads run along the columns: a warp has points of a sector of each"
    if narrow > _FEWEST_COLUMNS and _are_long(facts, columns) and number // narrow < facts.device.sms:
        rule, why = _FEWEST_COLUMNS, "few columns are long: of more, as many more threads meet in the end"
    side = choices.number(COLUMNS, rule, why)
    width = _width(facts, columns, along, side, choices)
    across = "" if facts.divides(side, along) else along
    side //= width
    choices.require(COLUMNS, side <= WARP, f"{side} threads side by side are more than a warp has")
    rule, why = _threads(facts, columns, number // (side * width), side, width)
    threads = choices.number(THREADS, rule, why)
    whole_warps = WARP <= side * threads <= _MOST_THREADS
    choices.require(THREADS, whole_warps, f"a block has whole warps, of {_MOST_THREADS} threads at most")
    exchanged = (len(facts.reductions) + positions) * side * width * threads * 8
    choices.require(THREADS, exchanged <= SHARED_BYTES, f"{exchanged} bytes of shared memory are too many")
    rule, why = _UNROLLED, "that many loads are in flight"
    if single:
        rule, why = _UNROLLED // 2, "more threads have loads in flight, and the last round is short"
    if facts.moments:
        rule, why = _CHUNK, "values are measured from one of so many"
    unrolled = choices.number(UNROLL, rule, why)
    cut = replace(columns, kind=TilingKind.COLUMNS, chunks=points, threads=threads, side=side, across=across)
    cut = replace(cut, chunk=along, elements=width) if width > 1 else cut
    return replace(cut, computed=is_computed(facts, columns), unroll=unrolled)


def _threads(facts: Facts, columns: Tiling, number: int, side: int, width: int) -> tuple[int, str]:
    """Threads of a column, or of the `width` columns of a vector, where each of `number` blocks has `side`; and why."""
    points, sms = math.prod(facts.hints[name] for name in columns.inner), facts.device.sms
    if width > 1:
        filling = 1 << (_FILLING * sms // number).bit_length() - 1
        block, most = min(max(filling, 2 * WARP), _THREADS_OF_MANY), _MOST_OF_VECTOR
    else:
        walked = is_computed(facts, columns) or any(reduction.position is not None for reduction in facts.reductions)
        block = _THREADS_OF_MANY if walked and number >= _MANY * sms else _THREADS
        most = 64 if _are_long(facts, columns) and not facts.moments else _SHORT_THREADS
    own = min(block // side, 1 << max(points // _STEPS, 1).bit_length() - 1, most)
    return max(8, WARP // side, own), f"{block} threads of a block, with {_STEPS} steps or more"


def _are_long(facts: Facts, columns: Tiling) -> bool:
    """Whether the threads of a column have loads enough for blocks of few columns."""
    points = math.prod(facts.hints[name] for name in columns.inner)
    return points >= _LONG or (2 * points >= _LONG and points * len(facts.loaded_bytes(columns, 1)) >= _LOADS)


def _width(facts: Facts, columns: Tiling, along: str, side: int, choices: Choices) -> int:
    """Adjacent columns of a thread, of which it loads a point as a vector."""
    alone = not _reads_again(facts, columns, choices)
    plain = alone and not (facts.moments or _computes(facts)) and all(r.position is None for r in facts.reductions)
    points, number = (math.prod(facts.hints[name] for name in names) for names in (columns.inner, columns.outer))
    filled = points >= _POINTS and number >= side * facts.device.sms
    width, why = 1, "a vector belongs to one loop, and functions of one take registers; places are not measured"
    if plain and filled and facts.divides(side, along):
        width, why = min(facts.chunk_elements(along), side), "one vector of the narrowest numbers"
    width = choices.number(WIDTH, width, why)
    choices.require(WIDTH, width == 1 or alone, "several loops need what would be one vector")
    possible = width <= side and facts.divides(width, along)
    choices.require(WIDTH, possible, f"{width} columns of a thread do not divide the {side} of a block, or their axis")
    return width


def _mixed(facts: Facts, columns: Tiling, along: str, choices: Choices) -> Tiling | None:
    """Columns that lie side by side in one operand, and each along memory in another: a warp has a sector of several
    points of the one, and of several columns of the other. Threads that each have a line would read a sector of the
    one for every element, a warp of more columns a line of the other for each of them."""
    last, sms = columns.inner[-1], facts.device.sms
    points, number = (math.prod(facts.hints[name] for name in names) for names in (columns.inner, columns.outer))
    side = _SECTOR * 4 // min((size for size in facts.loaded_bytes(columns, 1) if size > 1), default=1)
    while side > _FEWEST_COLUMNS and number // side < sms:
        side //= 2
    known = not (is_computed(facts, columns) or facts.is_dynamic(along)) and facts.divides(side, along)
    if not (known and points >= _STEPS * 8 and fits_grid([facts.hints[name] for name in columns.outer])):
        return None
    if not choices.flag(APPLIES, True, "a line for each thread group would read a sector for every element"):
        return None
    elements = 1 if facts.moments or _reads_again(facts, columns, choices) else facts.chunk_elements(last)
    if elements > 1:
        elements = choices.number(ELEMENTS, elements, "one vector of the narrowest numbers, or what divides the column")
        choices.require(ELEMENTS, facts.divides(elements, last), f"{elements} elements do not divide the column")
    side = choices.number(COLUMNS, side, "a sector of the narrowest numbers, or less if SMs had no block")
    choices.require(COLUMNS, facts.divides(side, along), f"{side} columns do not divide their axis")
    chunks, block = points // elements, _THREADS if number // side < _MANY * sms else _THREADS_OF_MANY
    steps = max(_MIXED_STEPS, _MIXED_ELEMENTS // elements)
    rule = max(WARP // side, min(block // side, 1 << max(chunks // steps, 1).bit_length() - 1))
    threads = choices.number(THREADS, rule, f"{block} threads of a block, with {steps} chunks or more")
    choices.require(
        THREADS, WARP <= side * threads <= _MOST_THREADS, "a block has whole warps, of 1,024 threads at most"
    )
    rule, why = (4, "so many vectors are in flight") if elements > 1 else (_UNROLLED, "that many loads are in flight")
    if facts.moments:
        rule, why = _CHUNK, "values are measured from one of so many"
    unrolled = choices.number(UNROLL, rule, why)
    chunk = last if elements > 1 else ""
    cut = replace(columns, kind=TilingKind.COLUMNS, chunk=chunk, elements=elements, chunks=chunks)
    return replace(cut, threads=threads, side=side, unroll=unrolled, adjacent=along)


def _reads_again(facts: Facts, columns: Tiling, choices: Choices) -> bool:
    """Whether several loops need an operand of the columns: a vector belongs to one."""
    together = gpu_tuples(facts.program, TilingKind.COLUMNS, choices)
    return bool(facts.searched or facts.loaded_bytes(columns, 2, together))


def _enough(facts: Facts) -> int:
    """Threads of each SM that are enough if each has a column of its own."""
    if any(reduction.position is not None for reduction in facts.reductions):
        return _BUSY
    if facts.moments:
        return _LOADING
    if _computes(facts):
        return _WALKING
    return _SUMMING if len(facts.reductions) > 1 else _LOADING


def _computes(facts: Facts) -> bool:
    """Whether a function or a quotient of each element is reduced."""
    assert facts.columns is not None
    reduced = set(facts.columns.inner)
    return any(value.operation in EXPENSIVE and reduced <= value.axes for value in facts.program.values)


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """The threads of a column meet in shared memory; all of them store its result."""
    found: list[Step] = []
    parent = kernel.parent
    for stage in kernel.outputs:
        first, *rest = _outer(kernel, stage)
        names = tuple(loop.name for loop in rest)
        found += [
            Split(stage.name, first.name, "block", _COLUMN, kernel.tiling.side),
            Reorder(stage.name, (*unroll_chunk(found, stage.name, stage.loops), _COLUMN, THREAD, "block", *names)),
            GpuThreads(stage.name, (_COLUMN, THREAD)),
            *grid(stage.name, _blocks(kernel, stage)),
        ]
        if stage is not parent:
            found.append(ComputeWith(stage.name, parent.name, _COLUMN))
    block = innermost(_blocks(kernel, parent)).name
    along = _outer(kernel, parent)[0].axis
    for stage in kernel.graph.stages:
        own = next((loop.name for loop in stage.loops if loop.axis == along and not is_element(loop)), "")
        if stage.role is Role.GROUP_REDUCTION:
            elements = [loop for loop in stage.loops if is_element(loop)]
            order = (*(loop.name for loop in elements), own, THREAD)
            rest = [loop for loop in stage.loops if loop.name not in order]
            found += [
                ComputeAt(stage.name, parent.name, block),
                StoreIn(stage.name, "GPUShared"),
                Bound(stage.name, THREAD, 0, kernel.tiling.threads),
                BoundExtent(stage.name, own, kernel.tiling.side),
                *(BoundExtent(stage.name, loop.name, 1) for loop in rest),
                *(Bound(stage.name, loop.name, 0, loop.extent) for loop in elements),
                *(Unroll(stage.name, loop.name) for loop in elements),
                Reorder(stage.name, (*order, *(loop.name for loop in rest))),
                GpuThreads(stage.name, (own, THREAD)),
            ]
        elif stage.role is Role.STAGED_LOAD:
            reductions = kernel.reductions_of(stage.name)
            if not reductions:
                load_words(found, stage, ComputeAt(stage.name, parent.name, _COLUMN))
            elif len(reductions) == 1 and kernel.line(stage) and reductions[0].updates[-1].kind is not LoopKind.CHUNK:
                place = ComputeAt(stage.name, reductions[0].name, _round(kernel, reductions[0]))
                load_words(found, stage, place)
        elif stage.role is Role.REDUCTION:
            (whole,) = (
                other.name for other in kernel.graph.consumers(stage.name) if other.role is Role.GROUP_REDUCTION
            )
            *chunk, loop = stage.updates
            found += [Unroll(stage.name, element.name, update=0) for element in chunk]
            found += [ComputeAt(stage.name, whole, own), *_together(kernel, stage)]
            if loop.kind is not LoopKind.CHUNK:
                unroll(found, stage, loop, divisor(loop, kernel.tiling.unroll))
        elif stage.role is Role.PACKED:
            (output,) = kernel.graph.consumers(stage.name)
            found += [ComputeAt(stage.name, output.name, _COLUMN), Unroll(stage.name, stage.loops[0].name)]
    return tuple(found)


def _together(kernel: TiledKernel, stage: Stage) -> list[Step]:
    """Steps that reduce adjacent columns of a thread at a time."""
    elements = [loop.name for loop in stage.loops if is_element(loop)]
    if not elements:
        return []
    found: list[Step] = [Reorder(stage.name, (*elements, *(loop.name for loop in stage.updates)), update=0)]
    for name in elements:
        found += [Unroll(stage.name, name), Unroll(stage.name, name, update=0)]
    return found


def _round(kernel: TiledKernel, reduction: Stage) -> str:
    """The loop of a reduction in each of whose iterations a thread has a chunk."""
    loop = reduction.updates[-1]
    count = divisor(loop, kernel.tiling.unroll)
    return loop.name if count == 1 or (loop.fixed and loop.extent == count) else f"{loop.name}i"


def _outer(kernel: TiledKernel, stage: Stage) -> list[Loop]:
    """The outer loops of an output, first that of adjacent columns: where their results lie is not what matters."""
    return sorted(kernel.outer_loops(stage), key=lambda loop: loop.axis != kernel.tiling.adjacent)


def _blocks(kernel: TiledKernel, stage: Stage) -> list[Loop]:
    """The loops over the blocks of an output, innermost first."""
    first, *rest = _outer(kernel, stage)
    return [blocks(first, "block", kernel.tiling.side), *rest]


RULE = Rule("column_groups", tile, steps)
