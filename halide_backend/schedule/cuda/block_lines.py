"""Lines on CUDA through which the threads of a block walk: they lie in shared memory, or are read again."""

from __future__ import annotations

import math
from collections.abc import Iterator

from halide_backend.schedule.cuda.teams import Levels, compute_together, give_to_teams, levels, pack, rows_of_teams
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, fuse, load_words, write_out
from halide_backend.schedule.cuda.unrolling import ROUND, WALKED, round_of_team, unroll
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import (
    Bound,
    ComputeAt,
    GpuThreads,
    Reorder,
    Split,
    Step,
    StoreInShared,
    Unroll,
)
from halide_backend.schedule.tiling import STEP, THREAD

#: Steps of a thread that are written out where their number is computed.
PART = "part"


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """A block for each row; what its threads reduce meets in shared memory."""
    found: list[Step] = []
    for stage in kernel.outputs:
        _output(found, kernel, stage)
    compute_together(found, kernel)
    parent, places = kernel.parent, levels(kernel, teams=1)
    along = kernel.runs_along_line(parent)
    step = PART if along and kernel.tiling.computed else places.step
    for stage in kernel.graph.stages:
        match stage.role:
            case Role.STAGED_LOAD:
                _load(found, kernel, stage, places, step)
            case Role.REDUCTION:
                (whole,) = (s.name for s in kernel.graph.consumers(stage.name) if s.role is Role.TEAM)
                element, loop = stage.updates
                found += [Unroll(stage.name, element.name, update=True), ComputeAt(stage.name, whole, THREAD)]
                unroll(found, stage, loop, round_of_team(loop))
            case Role.TEAM:
                found += [
                    ComputeAt(stage.name, parent.name, places.block),
                    StoreInShared(stage.name),
                    Bound(stage.name, THREAD, 0, kernel.tiling.threads),
                    GpuThreads(stage.name, (THREAD,)),
                ]
            case Role.PACKED:
                found += pack(stage, parent, step)
        found += kernel.narrowed(stage)
    return tuple(found)


def _output(found: list[Step], kernel: TiledKernel, stage: Stage) -> None:
    order = write_out(found, stage.name, stage.loops)
    rows = rows_of_teams(found, kernel, stage)
    if kernel.runs_along_line(stage):
        line = kernel.line(stage)
        names = (*order, *(loop.name for loop in line), *(loop.name for loop in rows))
        found.append(Reorder(stage.name, names))
        found += _shares(kernel, stage.name, fuse(found, stage.name, line, "n"))
        if kernel.tiling.computed:
            order = [*order, PART]
        elif kernel.tiling.steps <= ROUND:
            found.append(Unroll(stage.name, STEP))
        order = [*order, STEP]
    give_to_teams(found, kernel, stage, rows, order)


def _shares(kernel: TiledKernel, func: str, line: str) -> Iterator[Step]:
    """Share out the loop `line` among the threads of a block; of computed ones several steps are written out."""
    threads = kernel.tiling.threads
    if not kernel.tiling.computed:
        yield Split(func, line, STEP, THREAD, threads)
        return
    yield Split(func, line, STEP, "round", threads * WALKED)
    yield Split(func, "round", PART, THREAD, threads)
    yield Unroll(func, PART)


def _load(found: list[Step], kernel: TiledKernel, stage: Stage, places: Levels, step: str) -> None:
    """Load the words of a chunk where they are used, or a line that is read several times into shared memory."""
    sinks, reductions = kernel.sinks(stage.name), kernel.reductions_of(stage.name)
    if not reductions:
        load_words(found, stage, ComputeAt(stage.name, kernel.parent.name, step))
    elif len(sinks) == 1:
        loop = reductions[0].updates[1]
        count = round_of_team(loop)
        at_once = count == 1 or (loop.fixed and loop.extent == count)
        load_words(found, stage, ComputeAt(stage.name, reductions[0].name, loop.name if at_once else f"{loop.name}i"))
    else:
        _share(found, kernel, stage, places)


def _share(found: list[Step], kernel: TiledKernel, stage: Stage, places: Levels) -> None:
    """Keep a line that is read several times in shared memory; the block's threads load it together."""
    line, threads = kernel.line(stage), kernel.tiling.threads
    found += [ComputeAt(stage.name, kernel.parent.name, places.block), StoreInShared(stage.name)]
    vector = write_out(found, stage.name, [stage.loops[0]])
    fused = fuse(found, stage.name, line, "n")
    found.append(Split(stage.name, fused, STEP, THREAD, threads))
    if math.prod(loop.extent for loop in line) <= threads * ROUND:
        found.append(Unroll(stage.name, STEP))
    found += [Reorder(stage.name, (*vector, STEP, THREAD)), GpuThreads(stage.name, (THREAD,))]
