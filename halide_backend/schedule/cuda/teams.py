"""Outputs of CUDA threads that cooperate: a row of the kernel for each team of threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from halide_backend.schedule.cuda.grid import blocks, grid, innermost
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, are_fixed, fuse
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, LoopKind, Role, Stage
from halide_backend.schedule.steps import (
    Bound,
    ComputeAt,
    ComputeWith,
    GpuThreads,
    NeverPartition,
    Reorder,
    Split,
    Step,
    Unroll,
)
from halide_backend.schedule.tiling import STEP, THREAD, WARP

#: Warps of a block where a warp has a line, or several.
_WARPS = 4


@dataclass(frozen=True)
class Levels:
    """Loops of the output that all others follow: of a block, and of one step of a thread (or of the thread)."""

    block: str
    step: str


def levels(kernel: TiledKernel, teams: int) -> Levels:
    """The loops of a kernel with `teams` teams in a block."""
    rows = kernel.rows(kernel.parent)
    row = innermost(rows).name if len(rows) == 1 or are_fixed(rows) else "i"
    step = STEP if kernel.runs_along_line(kernel.parent) else THREAD
    return Levels("block" if teams > 1 else row, step)


def teams_of_a_block(kernel: TiledKernel, knob: Knob) -> int:
    """Teams of a block: several if they are part of a warp, or one; it has then as many warps as `knob` says."""
    tiling = kernel.tiling
    if tiling.threads > WARP or tiling.warps > 1:
        return 1
    return kernel.choices.number(knob, _WARPS, "1 to 8 warps were equally fast") * WARP // tiling.threads


def rows_of_teams(steps: list[Step], kernel: TiledKernel, stage: Stage) -> list[Loop]:
    """The loops over the row of an output; those of computed length are made one."""
    rows = kernel.rows(stage)
    if are_fixed(rows):
        return rows
    points = math.prod(loop.extent for loop in rows)
    return [Loop(fuse(steps, stage.name, rows, "i"), points, "i", fixed=False)]


def give_to_teams(
    steps: list[Step], kernel: TiledKernel, stage: Stage, rows: Sequence[Loop], order: Sequence[str], teams: int = 1
) -> None:
    """Map `rows` to blocks of `teams` teams; `order` are the loops of a thread, innermost first."""
    own = [loop.name for loop in stage.loops if loop.kind in (LoopKind.THREAD, LoopKind.WARP)]
    threads = tuple(own or [THREAD])
    steps.append(Reorder(stage.name, (*order, *threads, *(loop.name for loop in rows))))
    if teams == 1:
        steps += [GpuThreads(stage.name, threads), *grid(stage.name, rows)]
        return
    first, *rest = rows
    steps += [Split(stage.name, first.name, "block", "y", teams), GpuThreads(stage.name, (*threads, "y"))]
    if not first.fixed or kernel.has(Role.SCAN):
        steps.append(NeverPartition(stage.name, "block"))
    steps += grid(stage.name, [blocks(first, "block", teams), *rest])


def compute_together(steps: list[Step], kernel: TiledKernel) -> None:
    """Let a thread compute its part of every output, step by step where both run along the line."""
    parent, *others = kernel.outputs
    for stage in others:
        same = kernel.runs_along_line(stage) and kernel.runs_along_line(parent)
        steps.append(ComputeWith(stage.name, parent.name, STEP if same else THREAD))


def pack(stage: Stage, parent: Stage, step: str) -> tuple[Step, ...]:
    """Pack the words of a chunk where they are stored."""
    return ComputeAt(stage.name, parent.name, step), Unroll(stage.name, stage.loops[0].name)


def hold(stage: Stage) -> list[Step]:
    """Keep what a thread loads in all its steps in registers."""
    # Where a guard tells that some threads have fewer steps, their number would not be a constant.
    found: list[Step] = []
    for loop in (loop for loop in stage.loops if loop.kind is LoopKind.STEP):
        found += [Bound(stage.name, loop.name, 0, loop.extent), Unroll(stage.name, loop.name)]
    return found
