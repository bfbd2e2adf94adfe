"""Short lines of dynamic extent on CUDA: the lanes of a warp, or of a part of one, walk through each."""

from __future__ import annotations

from dataclasses import replace

from halide_backend.schedule.cuda.facts import Facts
from halide_backend.schedule.cuda.lines import are_lines, is_computed, points_of
from halide_backend.schedule.cuda.rule import Rule
from halide_backend.schedule.cuda.thread_groups import (
    compute_together,
    fused_outer_loops,
    groups_per_block,
    map_to_blocks,
)
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel
from halide_backend.schedule.cuda.unrolling import unroll
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import ComputeAt, Split, Step, Unroll
from halide_backend.schedule.tiling import STEP, THREAD, WARP, Tiling, TilingKind

THREADS = Knob("warp_lines.threads", (4, 8, 16, 32), "lanes of a warp that walk through a line")
UNROLL = Knob("warp_lines.unroll", (1, 2, 4, 8), "unroll factor of a lane's loop over a line")
WARPS = Knob("warp_lines.warps", (1, 2, 4, 8, 16), "warps of a block")

#: Typical points of a line for which a block is too much: an H200 starts 1,600 blocks in a microsecond (measured on an
#: H100: maxima of 906,876 rows of 37 floats 553 us in blocks of 64 threads, twice Triton's time).
_LONGEST = 512

#: Points from which lanes share a line that is stored along: a thread that has all of it stores, and reads several
#: times, apart from its neighbours (measured on an H200: softmax of typically 31 bfloat16 193 us, with lanes 55 us).
_SHORTEST = 8

#: Points of a typical line that a lane has, while a warp has the lanes: few exchanges, and loads in flight together.
_POINTS = 8


def tile(facts: Facts, choices: Choices) -> Tiling | None:
    """Several lines for a block, each of which is read again for every reduction."""
    line = facts.line
    if line is None or not is_computed(facts, line) or not line.outer or not are_lines(facts, line):
        return None
    points = points_of(facts, line)
    # Warps of several lines are padded along one axis.
    single = len(line.outer) == 1
    if not (_SHORTEST if single and facts.stored_bytes(line) else WARP) <= points <= _LONGEST:
        return None
    wanted = next((threads for threads in (4, 8, 16) if single and threads * _POINTS >= points), WARP)
    threads = choices.number(THREADS, wanted, f"each has about {_POINTS} points of a typical line")
    choices.require(THREADS, threads == WARP or single, "a warp has several lines only where there is one outer axis")
    steps = -(-points // threads)
    count = next((count for count in (1, 2, 4) if count >= steps), 8)
    count = choices.number(UNROLL, count, "a typical line in one iteration, or eight loads in flight")
    side = WARP // threads if threads < WARP else 0
    tiling = replace(line, kind=TilingKind.REGISTERS, chunks=points, threads=threads, side=side)
    return replace(tiling, computed=True, unroll=count)


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Lanes take elements of a line in turns, and exchange what they have reduced."""
    found: list[Step] = []
    groups, count = groups_per_block(kernel, WARPS), kernel.tiling.unroll
    for stage in kernel.outputs:
        outer = fused_outer_loops(found, kernel, stage)
        order: tuple[str, ...] = ()
        if kernel.runs_along_line(stage):
            found += [Split(stage.name, STEP, "round", "part", count), Unroll(stage.name, "part")]
            order = ("part", "round")
        map_to_blocks(found, kernel, stage, outer, order, groups)
    compute_together(found, kernel)
    for stage in kernel.graph.stages:
        if stage.role in (Role.REDUCTION, Role.GROUP_REDUCTION):
            found.append(ComputeAt(stage.name, kernel.parent.name, THREAD))
        if stage.role is Role.REDUCTION:
            element, loop = stage.updates
            found.append(Unroll(stage.name, element.name, update=0))
            unroll(found, stage, loop, count)
        found += kernel.narrowed(stage)
    return tuple(found)


RULE = Rule("warp_lines", tile, steps)
