"""Operands of reductions that lie across the others, turned in square tiles for some rows or columns at a time."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.schedule.cpu.kernel import CpuKernel, Level, Tasks
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import Bound, BoundExtent, ComputeAt, Reorder, Split, Step, Unroll, Vectorize

#: Tiles of one parallel iteration, at most, and iterations that there are then, at least.
TASK_TILES, TASKS = 4, 8


def turned_operands(kernel: CpuKernel, turned: Transposition, level: Level, skip: Sequence[Stage] = ()) -> list[Step]:
    """Steps of the operands of reductions that are turned: all tiles that are needed at `level` lie in the Func that is
    read, each computed by itself. The Funcs of the results `skip` turn no operands."""
    steps: list[Step] = []
    results = {each.name for output in skip for each in _tiles_of(kernel, output)}
    for stage in kernel.graph.stages:
        if stage.role is not Role.STAGED_LOAD or stage.name in results:
            continue
        tiles = _tiles(kernel, stage)
        place = level if tiles is stage else Level(tiles.name, tiles.loops[2].name)
        steps += [
            ComputeAt(stage.name, place.parent, place.var),
            *tile_in_vectors(stage, turned.side),
        ]
        if tiles is stage and turned.reduced == "rows":
            # Halide cannot prove that where a tail is guarded.
            steps.append(BoundExtent(stage.name, turned.across, 1))
    return steps


def tile_in_vectors(stage: Stage, side: int, *single: str) -> list[Step]:
    """Steps that compute a tile of Func `stage`, `side` elements a side, in vectors and without a loop. Along the axes
    `single` one tile is needed at a time, which Halide cannot prove where a tail is guarded."""
    steps: list[Step] = [Bound(stage.name, name, 0, side) for name in ("i", "j")]
    steps += [BoundExtent(stage.name, axis, 1) for axis in single]
    steps += [Vectorize(stage.name, "i"), Unroll(stage.name, "j")]
    for loop in stage.updates:
        steps += [Vectorize(stage.name, loop.name, update=0), Unroll(stage.name, "j", update=0)]
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


def reads_tiles(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether reduction `stage` reads operands that are turned in tiles, not only results of others that do."""
    read = [kernel.graph[name] for name in stage.calls]
    while read:
        each = read.pop()
        if each.role is Role.STAGED_LOAD:
            return True
        if each.role is not Role.REDUCTION:
            read += [kernel.graph[name] for name in each.calls]
    return False


def turned_in_blocks(kernel: CpuKernel) -> bool:
    """Whether operands and results are turned for a block of columns at a time."""
    return kernel.transposition is not None and kernel.transposition.reduced == "blocks"


def is_turned_result(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether output `stage` lies across the columns, and is stored in tiles that are turned."""
    turned = kernel.transposition
    axes = [loop.axis for loop in stage.loops]
    return turned_in_blocks(kernel) and turned is not None and axes[0] == turned.across and turned.column in axes


def turned_result(kernel: CpuKernel, stage: Stage, block: int, around: list[str], tasks: Tasks) -> list[Step]:
    """Steps of output `stage`, whose tiles are turned, in blocks of so many columns; `around` are the loops around
    these, innermost first."""
    turned = kernel.transposition
    assert turned is not None
    column, across, side = turned.column, turned.across, turned.side
    rows, columns, tiles = f"{across}_v", f"{column}_u", f"{across}_o"
    rest = [loop.name for loop in stage.loops if loop.name not in (column, across, *around)]
    cut = tasks.cut(stage.name, around)
    steps: list[Step] = [
        Split(stage.name, column, f"{column}_b", f"{column}_i", block),
        Split(stage.name, f"{column}_i", f"{column}_i", columns, side),
        Split(stage.name, across, tiles, rows, side),
        *cut.steps,
        Vectorize(stage.name, rows),
        Unroll(stage.name, columns),
        Reorder(stage.name, (rows, columns, tiles, *rest, f"{column}_i", *cut.loops)),
    ]
    for each in _tiles_of(kernel, stage):
        steps += [
            ComputeAt(each.name, stage.name, tiles),
            *tile_in_vectors(each, side, column, across),
        ]
    if tasks.outer in cut.loops:
        steps += tasks.shared(stage.name)
    return steps


def _tiles_of(kernel: CpuKernel, output: Stage) -> list[Stage]:
    """The Funcs that turn the tiles of a turned result, which is nothing but these."""
    found: list[Stage] = []
    calls = output.calls
    while calls and kernel.graph[calls[0]].role is Role.STAGED_LOAD:
        found.append(kernel.graph[calls[0]])
        calls = found[-1].calls
    return found
