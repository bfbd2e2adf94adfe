"""Scans on CUDA: the threads of a group hold their line in registers, each warp a contiguous part of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from halide_backend.errors import Unsupported
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Scan
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.lines import are_lines, is_computed, points_of, warp_of_lines
from halide_backend.schedule.cuda.register_lines import give_outputs, hold_load
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.thread_groups import groups_per_block, levels, pack
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.chunks import contiguous_axis
from halide_backend.schedule.stage import LoopKind, Role, Stage
from halide_backend.schedule.steps import Bound, ComputeAt, Reorder, Step, Unroll
from halide_backend.schedule.tiling import THREAD, WARP, Tiling, TilingKind

ELEMENTS = Knob("scans.elements", (1, 2, 4, 8), "adjacent elements that a thread scans one after another")
THREADS = Knob("scans.threads", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), "threads of a line")
WARPS = Knob("scans.warps", (1, 2, 4, 8, 16), "warps of a block where a warp has a line, or several")

#: Words of a line that a thread keeps at most, and those at which a line gets more threads than a warp has.
_MOST_WORDS, _WORDS = 32, 16

#: Bytes of the widest memory instruction, and of a word.
_VECTOR, _WORD = 16, 4

#: Warps of a block.
_MOST_WARPS = 32

#: Of many short lines: words that a lane has at most, bytes of a line and of a sector of
#: memory that an access touches, and instructions: of a thread whatever it does, of an element and a step, and of an
#: exchange (measured on an H200: sums of 906,876 lines of 37 bfloat16 141 us with 32 lanes, 73 us with 16, 52 us with 8
#: or 4, of 335,544 lines of 100 40 us with 8 or 16, 63 us with 4, of 800,000 lines of 20 64, 34 and 21 us with 16, 8
#: and 4).
_SHORT_WORDS, _MEMORY_LINE, _SECTOR, _ONCE, _ELEMENT, _EXCHANGE = 16, 128, 32, 70, 8, 4


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Thread groups that hold their lines, each of their warps a contiguous part of it; None for scans across memory.

    Raises:
        Unsupported: the threads of a block cannot hold a line, or there are other loops.
        IllegalPlan: the same because of what was requested.
    """
    if not facts.scans:
        return None
    line = _line(facts)
    if line is None:
        return None
    last, points = line.inner[-1], points_of(facts, line)
    elements = _adjacent(facts, line)
    elements = choices.number(ELEMENTS, elements, "one vector of the widest numbers that are stored, if words are read")
    choices.require(ELEMENTS, facts.divides(elements, last), f"{elements} elements do not divide the scanned axis")
    chunks, words = points // elements, _words(facts, line, elements)
    costs = dict(_short_lines(facts, line, chunks, elements, words))
    rule, why = min(costs, key=lambda number: costs[number], default=WARP), "the lanes of a warp hold the line"
    if rule < WARP:
        why = "a warp has several short lines, with the fewest instructions for each"
    if -(-chunks // rule) * words > _MOST_WORDS:
        rule = WARP * min(-(-chunks // (WARP * max(1, _WORDS // words))), _MOST_WARPS)
        why = f"{_WORDS} words for each, up to {_MOST_WORDS} in the largest block; not measured"
    threads = choices.number(THREADS, rule, why)
    padded = warp_of_lines(facts, line, threads)
    choices.require(THREADS, padded > 0, f"the lines do not fill warps in which each has {threads} threads")
    tiling = replace(line, chunk=last, elements=elements, chunks=chunks, side=padded if padded > 1 else 0)
    tiling = replace(tiling, threads=min(threads, WARP), warps=max(1, threads // WARP))
    excess = f"a thread would hold {tiling.steps * words} words of a line; {_MOST_WORDS} are the most"
    choices.require(THREADS, tiling.steps * words <= _MOST_WORDS, excess)
    if tiling.steps * words > _MOST_WORDS:
        raise Unsupported(
            "scan-too-long",
            f"a scan of {points} elements takes {tiling.steps * words} registers a thread, of {_MOST_WORDS}",
        )
    return tiling


def _adjacent(facts: Facts, line: Tiling) -> int:
    """Elements of a chunk: of several vectors that a thread stores each would be a part of a sector of memory (measured
    on an H200: places of 4,187,500 lines of 8 bfloat16 182 us with 8 elements, 98 us with 4, 87 us with 2)."""
    elements, stored = facts.chunk_elements(line.inner[-1]), max(facts.stored_bytes(line), default=1)
    narrowest = min(facts.loaded_bytes(line, 1), default=stored)
    while elements * stored > _VECTOR and elements * narrowest > _WORD:
        elements //= 2
    return elements


def _line(facts: Facts) -> Tiling | None:
    """Outer axes and line of a program that scans, as a tiling without chunks; None if it scans across memory.

    Raises:
        Unsupported: there are other loops, or the line is none of memory.
    """
    program = facts.program
    scans = [value.attribute for value in program.values if isinstance(value.attribute, Scan)]
    orders = {tuple(axis.name for axis in scan.axes) for scan in scans}
    nests = {frozenset(axis.name for axis in store.nest.axes) for store in program.stores}
    if len(orders) > 1 or nests != {frozenset(facts.extents)}:
        raise Unsupported(
            "scan-mixed-with-loops", f"scans over {sorted(orders)}, stores over {sorted(map(sorted, nests))}"
        )
    if facts.reductions or facts.recurs:
        raise Unsupported("scan-mixed-with-reduction", "a scan beside a reduction, or a loop as long as data say")
    (inner,) = orders
    line = Tiling(TilingKind.REGISTERS, tuple(name for name in facts.outer if name not in inner), inner)
    if not facts.scatters and len(inner) == 1 and contiguous_axis(program) in line.outer:
        return None
    if is_computed(facts, line):
        raise Unsupported(
            "scan-of-dynamic-length", f"a scan over {', '.join(f'{name} of {facts.extents[name]}' for name in inner)}"
        )
    if facts.scatters or not are_lines(facts, line):
        raise Unsupported("scan-result-not-contiguous", f"results are not contiguous along {', '.join(inner)}")
    if (contiguous := contiguous_axis(program)) != inner[-1]:
        raise Unsupported("scan-across-memory", f"a scan along {inner[-1]}, and {contiguous} is contiguous")
    return line


def _short_lines(facts: Facts, line: Tiling, chunks: int, elements: int, words: int) -> Iterator[tuple[int, int]]:
    """Numbers of lanes that can have a short line of so many `chunks`, and what it costs them: issued instructions.

    An access of a warp takes as many cycles as it touches lines of memory to load, or sectors to store, in each of
    which an SM issues four instructions.
    """
    lines = math.prod(facts.hints[name] for name in line.outer)
    stored = max(facts.stored_bytes(line), default=0)
    threads = WARP
    while threads and warp_of_lines(facts, line, threads):
        steps, together = -(-chunks // threads), WARP // threads
        # Lines as long as a warp keep it; of few lines each has as many lanes as it can use.
        busy = steps == 1 or lines * threads >= facts.device.sms * facts.device.threads
        if busy and steps * words <= _SHORT_WORDS and chunks <= 2 * WARP:
            read = 1 + together * chunks * words * 4 // _MEMORY_LINE
            written = together * -(-threads * elements * stored // _SECTOR)
            exchanges = _EXCHANGE * ((threads - 1).bit_length() + 2)
            step = _ELEMENT * (elements + 1) + exchanges + 4 * (read + written)
            yield threads, threads * (_ONCE + steps * step)
        threads //= 2


def _words(facts: Facts, line: Tiling, elements: int) -> int:
    """Words that a thread needs for a chunk: of what it reads, or of what it scans and uses again."""
    read, kept = (facts.loaded_bytes(line, uses) for uses in (1, 2))
    scanned = sum(ELEMENT[v.dtype][1] // 8 for v in facts.program.values if isinstance(v.attribute, Scan))
    return -(-elements * max([*read, scanned + sum(kept)]) // 4)


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """The Funcs of a scan are computed at the beginning of each thread."""
    found: list[Step] = []
    groups = groups_per_block(kernel, WARPS)
    give_outputs(found, kernel, groups)
    parent, step = kernel.parent, levels(kernel, groups).step
    for stage in kernel.graph.stages:
        match stage.role:
            case Role.STAGED_LOAD:
                hold_load(found, kernel, stage, step)
            case Role.SCAN:
                found += scan_steps(stage, parent, THREAD)
            case Role.PACKED:
                found += pack(stage, parent, step)
        found += kernel.narrowed(stage)
    return tuple(found)


def scan_steps(stage: Stage, parent: Stage, loop_of_parent: str) -> tuple[Step, ...]:
    """Compute `stage` where each iteration of a loop of output `parent` begins, all of its own loops unrolled.

    The steps of an update are outermost: exchanges that do not wait for one another lie side by side.
    """
    loops = [loop for loop in stage.loops if loop.kind in (LoopKind.STEP, LoopKind.ELEMENT)]
    written, steps = [loop.name for loop in loops], [loop.name for loop in stage.updates]
    found: list[Step] = [ComputeAt(stage.name, parent.name, loop_of_parent)]
    for loop in loops:
        # What is selected must not tell Halide that some of it is not needed.
        found += [Bound(stage.name, loop.name, 0, loop.extent), Unroll(stage.name, loop.name)]
    if steps:
        along = [name for name in written if name != stage.updates[0].axis]
        found.append(Reorder(stage.name, (*along, *steps), update=0))
        found += [Unroll(stage.name, name, update=0) for name in (*along, *steps)]
    return tuple(found)


RULE = Rule("scans", tile, steps)
