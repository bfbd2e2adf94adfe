"""Scans over an outer axis on CUDA: threads of a block share a column, and carry its scan from round to round."""

from __future__ import annotations

import math

from halide_backend.build.target import SHARED_BYTES
from halide_backend.errors import Unsupported
from halide_backend.program.access import WORD
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Scan
from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.grid import blocks, fits_grid, grid
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.scans import scan_steps
from halide_backend.schedule.cuda.thread_groups import hold, pack
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, load_words, unroll_chunk
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.chunks import contiguous_axis
from halide_backend.schedule.stage import Loop, LoopKind, Role, Stage
from halide_backend.schedule.steps import (
    ComputeAt,
    ComputeWith,
    GpuThreads,
    NeverPartition,
    Reorder,
    Split,
    Step,
    Unroll,
)
from halide_backend.schedule.tiling import ROUND, STEP, THREAD, Tiling, TilingKind

ELEMENTS = Knob("column_scans.elements", (1, 2, 4, 8), "adjacent columns of a thread")
COLUMNS = Knob("column_scans.columns", (8, 16, 32, 64, 128), "threads of a block that lie side by side")
THREADS = Knob("column_scans.threads", (1, 2, 4, 8, 16, 32), "threads of a column")
POINTS = Knob("column_scans.points", (4, 8, 16, 32), "adjacent points of a column that a thread scans in a round")

#: Threads of a block, and of each SM that keep enough loads in flight (see column_reductions.py).
_THREADS, _BUSY = 256, 993

#: CUDA's limit of every block.
_MOST_THREADS = 1024

#: Words that a thread scans in a round, and those that it keeps at most.
_WORDS, _MOST_WORDS = 32, 64

#: The loop over the columns of a block.
_COLUMN = "x"


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Columns that are adjacent in memory, of which a block has several, with several threads for each if there are
    few.

    Raises:
        Unsupported: no grid has as many dimensions as there are other axes.
        IllegalPlan: a requested setting does not divide the axis, or needs too many threads or registers.
    """
    if not facts.scans:
        return None
    program, along = facts.program, contiguous_axis(facts.program)
    ((scanned,),) = {tuple(axis.name for axis in s.axes) for v in program.values if isinstance(s := v.attribute, Scan)}
    outer = tuple(name for name in facts.outer if name != scanned)
    if not fits_grid([facts.hints[name] for name in outer]) or any(facts.is_dynamic(name) for name in outer):
        raise Unsupported("scan-across-memory", f"a scan along {scanned} for each point of {', '.join(outer)}")
    rule = min(facts.chunk_elements(along), max(1, WORD // 8 // _narrowest(facts)))
    elements = choices.number(ELEMENTS, rule, "a word of the narrowest numbers, so that there are many threads")
    choices.require(ELEMENTS, facts.divides(elements, along), f"{elements} elements do not divide the axis {along}")
    chunks, points = facts.hints[along] // elements, facts.hints[scanned]
    columns = math.prod(facts.hints[name] for name in outer) // elements
    wide = [count for count in (128, 64, 32, 16) if chunks >= count and columns // count >= facts.device.sms]
    side = choices.number(COLUMNS, max(wide, default=8), "the most that leave a block for each SM")
    words = elements * sum(ELEMENT[v.dtype][1] // 8 for v in program.values if isinstance(v.attribute, Scan)) // 4
    rule = min(16, max(4, _WORDS // max(words, 1)), max(4, _power(points)))
    lines = choices.number(POINTS, 1 << rule.bit_length() - 1, f"{_WORDS} words that a thread scans")
    needed = min(_power(facts.device.sms * _BUSY / columns), _power(points / lines), _THREADS // side)
    threads = choices.number(THREADS, max(1, needed), f"{_BUSY} threads of an SM, up to {_THREADS} of a block")
    excess = f"a thread would keep {lines * words} words; {_MOST_WORDS} are the most"
    choices.require(POINTS, lines * words <= _MOST_WORDS, excess)
    choices.require(THREADS, side * threads <= _MOST_THREADS, f"a block has {_MOST_THREADS} threads at most")
    exchanged = 2 * side * threads * words * 4
    choices.require(THREADS, threads == 1 or exchanged <= SHARED_BYTES, f"{exchanged} bytes of shared memory are many")
    kind = TilingKind.SCANNED_COLUMNS
    return Tiling(kind, outer, (scanned,), along, elements, points, threads, side=side, lines=lines)


def _narrowest(facts: Facts) -> int:
    """Bytes of the narrowest number that is loaded or stored, of those with more than one."""
    sizes = (ELEMENT[buffer.dtype][1] // 8 for buffer in (*facts.program.inputs, *facts.program.outputs))
    return min((size for size in sizes if size > 1), default=4)


def _power(number: float) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(math.ceil(number) - 1, 0).bit_length()


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Threads walk along their columns in rounds; everything of a round is computed when it begins."""
    found: list[Step] = []
    parent = kernel.parent
    for stage in kernel.outputs:
        order = unroll_chunk(found, stage.name, stage.loops)
        first, rest = _columns(kernel, stage)
        loops = (STEP, ROUND, _COLUMN, THREAD, "block", *(loop.name for loop in rest))
        found += [
            Unroll(stage.name, STEP),
            Split(stage.name, first.name, "block", _COLUMN, kernel.tiling.side),
            Reorder(stage.name, (*order, *loops)),
            GpuThreads(stage.name, (_COLUMN, THREAD)),
            # All threads come to each exchange: there is one version of what they do.
            NeverPartition(stage.name, "block"),
            *grid(stage.name, [blocks(first, "block", kernel.tiling.side), *rest]),
        ]
        if stage is not parent:
            found.append(ComputeWith(stage.name, parent.name, STEP))
    for stage in kernel.graph.stages:
        match stage.role:
            case Role.STAGED_LOAD:
                along = any(loop.kind is LoopKind.STEP for loop in stage.loops)
                load_words(found, stage, ComputeAt(stage.name, parent.name, ROUND if along else _COLUMN))
                found += hold(stage)
            case Role.SCAN:
                found += scan_steps(stage, parent, ROUND)
            case Role.PACKED:
                found += pack(stage, parent, STEP)
    return tuple(found)


def _columns(kernel: TiledKernel, stage: Stage) -> tuple[Loop, list[Loop]]:
    """The loop over the columns, and the other outer loops."""
    outer = kernel.outer_loops(stage)
    (first,) = (loop for loop in outer if loop.axis == kernel.tiling.chunk)
    return first, [loop for loop in outer if loop is not first]


RULE = Rule("column_scans", tile, steps)
