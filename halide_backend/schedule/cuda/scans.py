"""Scans on CUDA: the threads of a team hold their line in registers, each warp a stretch of it."""

from __future__ import annotations

from halide_backend.schedule.cuda.register_lines import WARPS, give_outputs, hold_load
from halide_backend.schedule.cuda.teams import levels, pack, teams_of_a_block
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel
from halide_backend.schedule.stage import LoopKind, Role, Stage
from halide_backend.schedule.steps import Bound, ComputeAt, Reorder, Step, Unroll
from halide_backend.schedule.tiling import THREAD


def steps(kernel: TiledKernel) -> tuple[Step, ...]:
    """The Funcs of a scan are computed where each thread begins."""
    found: list[Step] = []
    teams = teams_of_a_block(kernel.tiling, WARPS)
    give_outputs(found, kernel, teams)
    parent, step = kernel.parent, levels(kernel, teams).step
    for stage in kernel.graph.stages:
        match stage.role:
            case Role.STAGED_LOAD:
                hold_load(found, kernel, stage, step)
            case Role.SCAN:
                found += _scanned(stage, parent)
            case Role.PACKED:
                found += pack(stage, parent, step)
        found += kernel.narrowed(stage)
    return tuple(found)


def _scanned(stage: Stage, parent: Stage) -> tuple[Step, ...]:
    """Compute `stage` where each thread of output `parent` begins, all of its loops written out.

    The steps of an update are outermost: exchanges that do not wait for one another lie side by side.
    """
    loops = [loop for loop in stage.loops if loop.kind in (LoopKind.STEP, LoopKind.ELEMENT)]
    written, steps = [loop.name for loop in loops], [loop.name for loop in stage.updates]
    found: list[Step] = [ComputeAt(stage.name, parent.name, THREAD)]
    for loop in loops:
        # What is selected must not tell Halide that some of it is not needed.
        found += [Bound(stage.name, loop.name, 0, loop.extent), Unroll(stage.name, loop.name)]
    if steps:
        along = [name for name in written if name != stage.updates[0].axis]
        found.append(Reorder(stage.name, (*along, *steps), update=True))
        found += [Unroll(stage.name, name, update=True) for name in (*along, *steps)]
    return tuple(found)
