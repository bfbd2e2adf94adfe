"""Lines on CUDA that the threads of a team hold in their registers, between a reduction and what uses it."""

from __future__ import annotations

from halide_backend.schedule.cuda.teams import (
    compute_together,
    give_to_teams,
    hold,
    levels,
    pack,
    rows_of_teams,
    teams_of_a_block,
)
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, load_words, write_out
from halide_backend.schedule.stage import LoopKind, Role, Stage
from halide_backend.schedule.steps import ComputeAt, Step, Unroll
from halide_backend.schedule.tiling import THREAD

#: Warps of a block where a warp has a row, or several.
WARPS = 4


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """Everything is computed by the threads of a team, and exchanged between lanes and warps."""
    found: list[Step] = []
    teams = teams_of_a_block(kernel.tiling, WARPS)
    give_outputs(found, kernel, teams)
    parent, step = kernel.parent, levels(kernel, teams).step
    for stage in kernel.graph.stages:
        match stage.role:
            case Role.STAGED_LOAD:
                hold_load(found, kernel, stage, step)
            case Role.REDUCTION:
                element, along = stage.updates
                found += [
                    Unroll(stage.name, element.name, update=True),
                    ComputeAt(stage.name, parent.name, THREAD),
                    Unroll(stage.name, along.name, update=True),
                ]
            case Role.TEAM:
                found.append(ComputeAt(stage.name, parent.name, THREAD))
            case Role.PACKED:
                found += pack(stage, parent, step)
        found += kernel.narrowed(stage)
    return tuple(found)


def give_outputs(found: list[Step], kernel: TiledKernel, teams: int) -> None:
    """Give every output to blocks of so many `teams`, all steps of a thread written out."""
    for stage in kernel.outputs:
        order = write_out(found, stage.name, stage.loops)
        rows = rows_of_teams(found, kernel, stage)
        for loop in (loop for loop in stage.loops if loop.kind is LoopKind.STEP):
            found.append(Unroll(stage.name, loop.name))
            order.append(loop.name)
        give_to_teams(found, kernel, stage, rows, order, teams)
    compute_together(found, kernel)


def hold_load(found: list[Step], kernel: TiledKernel, stage: Stage, step: str) -> None:
    """Load the words of a chunk where they are used, or for all steps before what reduces or scans them."""
    var = THREAD if kernel.reductions_of(stage.name) else step
    load_words(found, stage, ComputeAt(stage.name, kernel.parent.name, var))
    if var == THREAD:
        found += hold(stage)
