"""Lines on CUDA that the threads of a group hold in their registers, between a reduction and what uses it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.grid import fits_grid
from halide_backend.schedule.cuda.lines import are_lines, are_rows, is_computed, points_of, warp_of_lines
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.thread_groups import (
    compute_together,
    fused_outer_loops,
    groups_per_block,
    hold,
    levels,
    map_to_blocks,
    pack,
)
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, load_words, unroll_chunk
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.tuples import gpu_tuples
from halide_backend.schedule.stage import LoopKind, Role, Stage
from halide_backend.schedule.steps import ComputeAt, Step, Unroll
from halide_backend.schedule.tiling import THREAD, WARP, Tiling, TilingKind

APPLIES = Knob(
    "register_lines.applies", (False, True), "the threads of a group keep a line that they reduce in registers"
)
ELEMENTS = Knob("register_lines.elements", (1, 2, 4, 8), "adjacent elements that a thread loads and stores at a time")
THREADS = Knob("register_lines.threads", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "threads of a line")
WARPS = Knob("register_lines.warps", (1, 2, 4, 8, 16), "warps of a block where a warp has a line, or several")

#: Words of a line that one lane of a warp keeps in registers: 32 of 255 (half-filled warps spill from four times that).
_LANE_WORDS = 32

#: Words of a line that a thread of a larger group holds: 2 vectors, 4 where the group would be too large (measured on
#: an H200: rms_norm of 4096 numbers 67.1 us with 2, 69.5 us with 4; softmax of 8192 38.4 us with 1024 threads, 36.4).
#: Where lines are as many as SMs threads need not be: 8 vectors if 4 leave too large a thread group (group_norm of
#: 12100 floats 34.6 us with 4, 33.8 us with 8), and 4 of what is used but once (sums of 2048 floats 18.8 us with 2
#: vectors, 18.3 us with 4).
_THREAD_WORDS, _MANY_WORDS, _PASSING_WORDS = (8, 16), (8, 16, 32), (16,)

#: The same of a line of which nothing is stored along it: whoever has more of it waits less for others (measured on an
#: H200: logsumexp of 4096 floats 39.3 us with 2 vectors, 34.4 us with 4, of bfloat16 23.7 and 20.8 us).
#: Not where loads wait for indices along it (losses of 512 rows, gathered and summed up, in a kernel after that of
#: their logarithms 7.22 us with 64 threads, 5.04 us with 128).
_REDUCED_WORDS = (16, 32)

#: Words of what is used but once that a lane keeps: 32 of them wait longer than two lanes exchange.
_LANE_PASSING_WORDS = 24

#: Threads of an SM up to which a line of what is used several times gets more than a warp, and the most that it gets:
#: each loads less before it waits. And the chunks that each has of a line along which nothing is stored (statistics of
#: 4 x 64 floats of 256 channels on an H200: 1.83 us with one, 1.66 us with two, which are a warp's; the sums of a batch
#: norm's gradient, of four operands of 4 x 256 floats, of 128 channels 6.5 us with a warp, 3.3 us with 256 threads).
_FEW_THREADS, _MOST_OF_FEW, _REDUCED_CHUNKS = 2048, 256, 2

#: Words of a short line, and of it those that a thread keeps at most; bytes of a line and of a sector of memory;
#: instructions for one exchange, and those of a line whatever its length (measured on an H200 with 16-bit rows: softmax
#: of 100 elements 54.6 us with 32 threads, 36.1 us with 8; maxima of 37 143 us with 32 threads, 73 us with 16, 38 us
#: with 8; layer_norm of 37 72 us with 16, 96 us with 4; log_softmax of 10 130 us with 8, 37 us with 1).
_SHORT_LINE, _SHORT_WORDS, _MEMORY_LINE, _SECTOR, _EXCHANGE, _ONCE = 192, 16, 128, 32, 12, 30

#: Chunks of a line, of a word or less each, up to which its threads issue more than memory takes, and the instructions
#: of a line then (measured on an H200, lines of 18 million numbers: normalising rows of 7 bfloat16 69.6, 28.2, 52.1 and
#: 101.5 us with 1 to 8 threads, of 13 floats 182, 65, 44 and 58 us; sums of rows of 11 floats 25.4, 25.2 and 38.0 us).
_FEW_CHUNKS, _ONCE_OF_FEW = 16, 130

#: Bytes of the widest memory instruction, and of a word.
_VECTOR, _WORD = 16, 4

#: CUDA's limit of the registers of one thread, and what it needs besides its share of the line.
_MOST_REGISTERS, _OTHER_REGISTERS = 255, 14

#: Lines for each SM that are enough where neighbouring ones are adjacent in what is read, as all loads of a thread are
#: in flight, and threads of a longer one (measured on an H200: normalising 24 channels of 128 x 75 x 75 floats into
#: channels-last 89 us with a thread for a pixel, 40 us with 4; 32 of 96 x 75 x 75 bfloat16 29.9 us, 23.0 us with 4 and
#: 28.6 us with 8), and threads of each SM that fill a GPU.
_CROSSING, _CROSSING_THREADS, _BUSY = 128, 4, 993

#: CUDA's limit, and threads with which walking is as good as holding a line that nothing uses twice.
_MOST_THREADS_OF_A_BLOCK, _MOST_THREADS = 1024, 512

#: Elements of a line that one thread may have: all its iterations are unrolled, and Halide's time grows with them.
MOST_ELEMENTS = 64


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Thread groups for lines of static extent with outputs of contiguous lines or rows, if their threads have the
    registers."""
    crossed = _crossed_line(facts)
    line = crossed or facts.line
    if line is None or is_computed(facts, line) or not (are_lines(facts, line) or are_rows(facts, line)):
        return None
    points = points_of(facts, line)
    if points < WARP and not fits_grid([facts.hints[name] for name in line.outer]):
        return None  # A thread for each line fuses the outer loops.
    if points < WARP // 2 and not facts.stored_bytes(line) and not warp_of_lines(facts, line, WARP // 2):
        return None  # Each would have a warp, most of whose lanes have nothing.
    elements, reason = _crossed_chunk(facts, line) if crossed else _adjacent(facts, line)
    fitted = _crossed if crossed else _tiling
    tiling, _ = fitted(facts, line, elements)
    if _excess(facts, tiling):
        return None
    applies, why = tiling.threads <= _MOST_THREADS, "the registers of the threads hold the line"
    again = facts.loaded_bytes(line, uses=2)
    if again and not applies:
        # A block that walks along the line may reduce all of it in one walk.
        again = facts.loaded_bytes(line, 2, gpu_tuples(facts.program, TilingKind.BLOCK, choices))
    if again:
        applies, why = True, "what is used several times is loaded once"
    elif not applies:
        why = "long lines whose elements are used once are better looped over"
    if not choices.flag(APPLIES, applies, why):
        return None
    elements = choices.number(ELEMENTS, elements, reason)
    possible = facts.divides(elements, line.inner[-1])
    choices.require(ELEMENTS, possible, f"{elements} elements do not divide the innermost axis of the line")
    tiling, why = fitted(facts, line, elements)
    tiling = _shared_by(tiling, choices.number(THREADS, tiling.threads, why))
    choices.require(THREADS, tiling.threads >= tiling.row, f"rows have {tiling.row} chunks, one for each thread")
    padded = warp_of_lines(facts, line, tiling.threads)
    tiling = replace(tiling, side=padded if padded > 1 else 0)
    choices.require(THREADS, padded > 0, f"the lines do not fill warps in which each has {tiling.threads} threads")
    busy = tiling.threads <= max(WARP, tiling.chunks)
    choices.require(THREADS, busy, f"of {tiling.threads} threads some have nothing, and would not come to an exchange")
    excess = _excess(facts, tiling)
    choices.require(THREADS, not excess, excess)
    return tiling


def threads(facts: Facts) -> int:
    """Threads of a line, as far as nothing is stored across it; 0 if this rule has none for them."""
    if crossed := _crossed_line(facts):
        return _crossed(facts, crossed, _crossed_chunk(facts, crossed)[0])[0].threads
    line = facts.line
    if line is None or is_computed(facts, line) or not are_lines(facts, line):
        return 0
    return _tiling(facts, line, _adjacent(facts, line)[0])[0].threads


def _crossed_line(facts: Facts) -> Tiling | None:
    """A line for a thread, or for a few, which store it in vectors, while neighbouring lines are adjacent in what they
    read."""
    line = facts.crossed_line
    if line is None or is_computed(facts, line) or not are_lines(facts, line):
        return None
    tiling, _ = _crossed(facts, line, _crossed_chunk(facts, line)[0])
    enough = math.prod(facts.hints[name] for name in line.outer) >= _CROSSING * facts.device.sms
    held = tiling.steps * tiling.elements * max(1, len(facts.loaded_bytes(line, uses=2)))
    return line if enough and held <= MOST_ELEMENTS and warp_of_lines(facts, line, tiling.threads) else None


def _crossed_chunk(facts: Facts, line: Tiling) -> tuple[int, str]:
    """Elements of a chunk of such a line."""
    most = _VECTOR // max(facts.stored_bytes(line))
    counts = [count for count in (1, 2, 4, 8) if count <= most and facts.divides(count, line.inner[-1])]
    return max(counts), "one vector of the widest numbers that are stored, or a part of one"


def _crossed(facts: Facts, line: Tiling, elements: int) -> tuple[Tiling, str]:
    """Its tiling: a line of more than a sector has so many threads that these store 64 bytes side by side, and as many
    lines of a warp read a sector; more, where lines are few, or threads would have half of what they may."""
    chunks, size = points_of(facts, line) // elements, max(facts.stored_bytes(line))
    tiling = replace(line, kind=TilingKind.REGISTERS, chunk=line.inner[-1], elements=elements, chunks=chunks)
    if chunks * elements * size <= _SECTOR:
        return tiling, "a line of a sector or less for each"
    lines, threads = math.prod(facts.hints[name] for name in line.outer), _CROSSING_THREADS
    while threads < WARP // 2 and 2 * threads <= chunks:
        if lines * threads >= _BUSY * facts.device.sms and chunks * elements <= threads * MOST_ELEMENTS // 2:
            break
        threads *= 2
    return replace(
        tiling, threads=min(threads, 1 << (chunks - 1).bit_length())
    ), "they store 64 bytes side by side, or more"


def _adjacent(facts: Facts, line: Tiling) -> tuple[int, str]:
    """The elements of a chunk: of two vectors that a thread stores each would be half of a sector of memory."""
    elements, stored = facts.chunk_elements(line.inner[-1]), max(facts.stored_bytes(line), default=1)
    narrowest = min((size for size in facts.loaded_bytes(line, 1) if size > 1), default=stored)
    if elements * stored > _VECTOR and elements * narrowest > _VECTOR // 2:
        return elements // 2, "one vector of the widest numbers that are stored"
    return elements, "one vector of the narrowest numbers, or what divides the line"


def _tiling(facts: Facts, line: Tiling, elements: int) -> tuple[Tiling, str]:
    """The tiling of a line in chunks of `elements` elements, and the reason for its number of threads."""
    chunks = points_of(facts, line) // elements
    tiling = replace(line, kind=TilingKind.REGISTERS, chunk=line.inner[-1], elements=elements, chunks=chunks)
    if not are_lines(facts, line):
        row = facts.hints[line.inner[-1]] // elements
        threads = 1 << (row - 1).bit_length() if row <= WARP else -(-row // WARP) * WARP
        return _shared_by(replace(tiling, threads=row, row=row), threads), "a chunk of each row for one"
    widest = max(_words(facts, line, elements, 1), default=1)
    # Not where masks alone are used twice.
    together = sum(_words(facts, line, elements, 2)) >= widest
    lines, sms = math.prod(facts.hints[name] for name in line.outer), facts.device.sms
    stored, whole = bool(facts.stored_bytes(line)), chunks % WARP == 0
    # Threads without a chunk would load behind a branch, and nobody exchanges behind one.
    spread = stored or (whole and facts.gathers_along(line))
    threads, why = WARP, f"the lanes of a warp hold up to {_LANE_WORDS} words each"
    costs = dict(_short_lines(facts, tiling, lines, widest))
    if costs:
        threads = min(costs, key=lambda number: costs[number])
        why = "the fewest instructions for a short line, and lines of memory"
    # Warps cannot exchange behind a loop that some of their lanes have left.
    lane = _LANE_WORDS if together or facts.iterates else _LANE_PASSING_WORDS
    if -(-chunks // threads) * widest > lane:
        shares = (_MANY_WORDS if together else _PASSING_WORDS) if lines >= sms else _THREAD_WORDS
        if together and not spread:
            shares = _REDUCED_WORDS
        sizes = [-(-chunks // max(1, words // widest)) for words in shares]
        wanted = next((threads for threads in sizes if threads <= _MOST_THREADS), sizes[-1])
        threads = min(-(-wanted // WARP) * WARP, _MOST_THREADS_OF_A_BLOCK)
        why = f"{' or '.join(map(str, shares))} words for each, as there are {lines} lines for {sms} SMs"
    several = together and (spread or threads <= WARP) and not facts.iterates
    share = chunks if spread else chunks // _REDUCED_CHUNKS
    more = _threads_of_few(chunks, min(share, sms * _FEW_THREADS // max(lines, 1))) if several else 0
    if more > max(threads, WARP):
        threads, why = more, f"few loads for each, as there are {lines} lines for {sms} SMs"
    return replace(tiling, threads=threads), why


def _shared_by(tiling: Tiling, threads: int) -> Tiling:
    """`tiling` for groups of `threads` threads; of a row of chunks those beyond its end are counted, too."""
    return replace(tiling, threads=threads, chunks=tiling.steps * threads if tiling.row else tiling.chunks)


def _threads_of_few(chunks: int, most: int) -> int:
    """Whole warps, `most` threads at most, among which a line of `chunks` chunks is divided in the fewest steps."""
    most, steps = max(min(most, chunks, _MOST_OF_FEW), WARP), 1
    while (threads := -(-chunks // (steps * WARP)) * WARP) > most:
        steps += 1
    return threads


def _short_lines(facts: Facts, tiling: Tiling, number: int, widest: int) -> Iterator[tuple[int, int]]:
    """Numbers of threads that can have one of `number` short lines, and what a line costs them: issued instructions.

    A load of a warp takes as many cycles as it touches lines of memory, in each of which an SM issues four
    instructions, and a store about as many as it touches sectors. Fewer threads have more elements each, and exchange
    less.
    """
    if tiling.chunks * widest > _SHORT_LINE:
        return
    read = min(facts.loaded_bytes(tiling, 1), default=4) * tiling.elements
    stored = facts.stored_bytes(tiling)
    # Of what begins within a sector both ends are written in parts (centred rows of 100 bfloat16 take 38.9 us with 8
    # threads, 36.8 us with 16).
    ends = 2 * int(not facts.divides_bytes(_SECTOR, tiling.inner[-1], min(stored, default=_SECTOR)))
    few = tiling.chunks <= _FEW_CHUNKS and tiling.elements * max([*facts.loaded_bytes(tiling, 1), *stored]) <= _WORD
    once = _ONCE_OF_FEW if few else _ONCE
    threads = WARP
    while threads and warp_of_lines(facts, tiling, threads):
        steps, lines = -(-tiling.chunks // threads), WARP // threads
        # Fewer threads than a GPU has at a time had better not have several steps.
        busy = threads == WARP or steps == 1 or number * threads >= facts.device.sms * facts.device.threads
        if busy and steps * widest <= _SHORT_WORDS:
            step = 8 * tiling.elements + 4 * (1 + lines * tiling.chunks * read // _MEMORY_LINE)
            for each in (size * tiling.elements for size in stored):
                apart = lines * (-(-threads * each // _SECTOR) + ends)
                together = lines * tiling.chunks * each // _SECTOR + 1
                step += 4 * min(apart, together)
            exchanges = len(facts.reductions) * (threads.bit_length() - 1)
            yield threads, threads * (steps * step + _EXCHANGE * exchanges + once)
        threads //= 2


def _excess(facts: Facts, tiling: Tiling) -> str:
    """Why the threads of a group cannot hold the line, "" if they can."""
    together = sum(_words(facts, tiling, tiling.elements, 2))
    if tiling.threads > _MOST_THREADS_OF_A_BLOCK:
        return f"{tiling.threads} threads, of which a block has {_MOST_THREADS_OF_A_BLOCK} at most"
    if tiling.row and tiling.steps * together > _LANE_WORDS:
        return f"a thread would hold {tiling.steps * together} words of rows; {_LANE_WORDS} are the most"
    room = min(_MOST_REGISTERS, facts.device.registers // tiling.threads) - _OTHER_REGISTERS
    if tiling.steps * together > room:
        return f"a thread would hold {tiling.steps * together} words in {room} registers"
    if (count := tiling.steps * tiling.elements) > MOST_ELEMENTS:
        return f"a thread would have {count} elements, all unrolled; {MOST_ELEMENTS} are the most"
    return ""


def _words(facts: Facts, line: Tiling, elements: int, uses: int) -> list[int]:
    """Words of a chunk of each load, for loads with `uses` or more reductions and stores."""
    return [max(elements * size, 4) // 4 for size in facts.loaded_bytes(line, uses)]


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Everything is computed by the threads of a group, and exchanged between lanes and warps."""
    found: list[Step] = []
    groups = groups_per_block(kernel, WARPS)
    give_outputs(found, kernel, groups)
    parent, step = kernel.parent, levels(kernel, groups).step
    for stage in kernel.graph.stages:
        match stage.role:
            case Role.STAGED_LOAD:
                hold_load(found, kernel, stage, step)
            case Role.REDUCTION:
                element, along = stage.updates
                found += [
                    Unroll(stage.name, element.name, update=0),
                    ComputeAt(stage.name, parent.name, THREAD),
                    Unroll(stage.name, along.name, update=0),
                ]
            case Role.GROUP_REDUCTION:
                found.append(ComputeAt(stage.name, parent.name, THREAD))
            case Role.PACKED:
                found += pack(stage, parent, step)
        found += kernel.narrowed(stage)
    return tuple(found)


def give_outputs(found: list[Step], kernel: TiledKernel, groups: int) -> None:
    """Map every output to blocks of `groups` thread groups, all iterations of a thread unrolled."""
    for stage in kernel.outputs:
        order = unroll_chunk(found, stage.name, stage.loops)
        outer = fused_outer_loops(found, kernel, stage)
        for loop in (loop for loop in stage.loops if loop.kind is LoopKind.STEP):
            found.append(Unroll(stage.name, loop.name))
            order.append(loop.name)
        map_to_blocks(found, kernel, stage, outer, order, groups)
    compute_together(found, kernel)


def hold_load(found: list[Step], kernel: TiledKernel, stage: Stage, step: str) -> None:
    """Load the words of a chunk where they are used, or of all iterations before a reduction or scan that uses them."""
    var = THREAD if kernel.reductions_of(stage.name) else step
    load_words(found, stage, ComputeAt(stage.name, kernel.parent.name, var))
    if var == THREAD:
        found += hold(stage)


RULE = Rule("register_lines", tile, steps)
