"""Operands of reductions that lie across the others, turned in square tiles for some rows or columns at a time."""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import CpuKernel, Level
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import Bound, BoundExtent, ComputeAt, Step, Unroll, Vectorize

#: Tiles of one parallel iteration, at most, and iterations that there are then, at least.
TASK_TILES, TASKS = 4, 8


def turned_operands(kernel: CpuKernel, turned: Transposition, level: Level) -> list[Step]:
    """Steps of the operands of reductions that are turned: all tiles that are needed at `level` lie in the Func that is
    read, each computed by itself."""
    steps: list[Step] = []
    for stage in kernel.graph.stages:
        if stage.role is not Role.STAGED_LOAD:
            continue
        tiles = _tiles(kernel, stage)
        place = level if tiles is stage else Level(tiles.name, tiles.loops[2].name)
        steps += [
            ComputeAt(stage.name, place.parent, place.var),
            Bound(stage.name, "i", 0, turned.side),
            Bound(stage.name, "j", 0, turned.side),
            Vectorize(stage.name, "i"),
            Unroll(stage.name, "j"),
        ]
        if tiles is stage and turned.reduced == "rows":
            # Halide cannot prove that where a tail is guarded.
            steps.append(BoundExtent(stage.name, turned.across, 1))
    return steps


def tiles_of_task(along: Loop, side: int, grain: int) -> int:
    """Tiles of `side` elements along loop `along` of one parallel iteration, which has `grain` elements otherwise."""
    count = -(-along.extent // side)
    if along.fixed and along.extent % side == 0:
        # Tiles beyond the end are read without a guard: there are none.
        return max(tiles for tiles in range(1, max(1, grain // side) + 1) if count % tiles == 0)
    # In a serial loop all steps but the last have no guard.
    return max(2, grain // side, min(TASK_TILES, count // TASKS))


def _tiles(kernel: CpuKernel, stage: Stage) -> Stage:
    """The last of the Funcs that turn tiles, of which `stage` is one."""
    following = [user for user in kernel.graph.consumers(stage.name) if user.role is Role.STAGED_LOAD]
    return _tiles(kernel, following[0]) if following else stage
