"""Stores at computed positions: points one after another, since two may meet at one place, columns side by side, and
rows of memory that never meet by any thread.

Where there are no columns, points that are known to lie side by side are stored in vectors, though rows of them
overlap. Of all others the values and positions of a block are computed in vectors before they are stored one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from halide_backend.schedule.cpu.kernel import COPY_WORK, CpuKernel, Cut, has, vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import (
    AllowRaceConditions,
    ComputeAt,
    Parallel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
)

BLOCK = Knob(
    "scatters.block",
    (1, 64, 256, 1024),
    "points whose values and positions are computed in vectors before they are stored; 1: each alone",
)

#: Rows of a tile whose values lie across the columns: lines of memory stay in the L1 cache until all of them are added.
#: 512 rows of 384 floats to 16 places 195 us, 53 with 16 rows, 48 with 64, in turns by a script on an AMD Zen 5.
_TILE = 64

#: Vectors of a row that are one block, all stored without a loop, and vectors that are stored so of longer rows: 4,000
#: rows that are added to 1,000, of 33 floats, 0.77 and 1.26 of C++'s speed, of 100 0.84 and 1.10, of 256 to 100 0.90
#: and 1.04, in turns by a script on an AMD Zen 5.
_ROW, _TOGETHER = 8, 4

#: Points of a block, and the shortest loop that has one.
_BLOCK, _SHORTEST = 256, 8

#: Fewest rows that threads share, and the operations that a store at a computed position is worth: its place is
#: loaded, bounded and checked.
_FEW, _STORE = 4, 4

#: Points that are stored without a loop: its count and its branch take as long as a store.
_UNROLLED = 4


def scatter(kernel: CpuKernel, stage: Stage) -> list[Step]:
    """Steps of the update of `stage`; none where it has neither columns, nor rows, nor points worth a vector."""
    names = [loop.name for loop in stage.loops]
    columns, rows = stage.loops[: names.index("p")], stage.loops[names.index("p") + 1 :]
    shared = _shared(kernel, stage, rows)
    if not columns:
        return [*_in_blocks(kernel, stage), *shared]
    if columns[0].extent < 4:
        return shared
    column, lanes = columns[0], kernel.lanes(stage.bits)
    apart = has(kernel.graph[stage.calls[1]], column.axis)
    # Half a page of float32, with which index_add is at 0.93 of C++, with 256 at 0.86; two blocks for threads to share,
    # unless each would be less than a few vectors.
    least = 1 if apart or column.extent <= _ROW * lanes else 2
    blocks = min(max(column.extent // 512, least), 4)
    block = max(lanes, -(-column.extent // blocks // 16) * 16)
    within = f"{column.name}_i"
    if apart and stage.updates:
        in_block = _single(kernel, stage, within, stage.updates[0].name)
    else:
        in_block = _together(kernel, stage, within, block, lanes)
    around = (f"{column.name}_b", *names[names.index("p") + 1 :])
    order, tile = (*in_block.loops, *(loop.name for loop in stage.updates), *around), list[Step]()
    if stage.updates and not apart and _lies_across(kernel, stage, column.axis):
        in_block = vectors(stage.name, within, block, lanes, update=0)
        (first, several), (point, *others) = in_block.loops, stage.updates
        tiles, in_tile = f"{point.name}_o", f"{point.name}_i"
        tile = [Split(stage.name, point.name, tiles, in_tile, min(_TILE, point.extent), update=0)]
        order = (first, in_tile, several, tiles, *(loop.name for loop in others), *around)
    steps: list[Step] = [
        Split(stage.name, column.name, f"{column.name}_b", within, block, 0),
        *in_block.steps,
        *tile,
        Reorder(stage.name, order, update=0),
        *shared,
    ]
    if kernel.parallel and not shared:
        steps.append(Parallel(stage.name, f"{column.name}_b", update=0))
    return steps


def _shared(kernel: CpuKernel, stage: Stage, rows: Sequence[Loop]) -> list[Step]:
    """Steps that share the longest loop over `rows` out among threads."""
    row = max(rows, key=lambda loop: loop.extent, default=None)
    if row is None or row.extent < _FEW or not kernel.parallel:
        return []
    work = math.prod(loop.extent for loop in (*stage.loops, *stage.updates)) // row.extent
    grain = kernel.grain(row.extent, work * _STORE)
    if grain == 1:
        return [Parallel(stage.name, row.name, update=0)]
    return [
        Split(stage.name, row.name, f"{row.name}_t", row.name, grain, update=0),
        Parallel(stage.name, f"{row.name}_t", update=0),
    ]


def _together(kernel: CpuKernel, stage: Stage, name: str, block: int, lanes: int) -> Cut:
    """Cut loop `name` of a block into vectors, of which a few are stored without a loop: their row is computed once."""
    vector = vectors(stage.name, name, block, lanes, update=0)
    several = block // lanes
    whole = several <= _ROW and (stage.loops[0].extent <= block or several % _TOGETHER)
    count = several if whole else next(n for n in range(_TOGETHER, 0, -1) if several % n == 0)
    if count == 1:
        return vector
    (lane, loop), unrolled = vector.loops, f"{name}_u"
    steps = (Split(stage.name, loop, loop, unrolled, count, update=0), Unroll(stage.name, unrolled, update=0))
    return Cut((*vector.steps, *steps), (lane, unrolled, loop))


def _single(kernel: CpuKernel, stage: Stage, name: str, at: str) -> Cut:
    """Cut loop `name` of a block whose elements go to places of their own into single ones. The places are computed
    before, in vectors: a vector of them is stored as one element after another, and takes longer."""
    steps: list[Step] = [Split(stage.name, name, name, f"{name}_u", _UNROLLED, update=0)]
    steps.append(Unroll(stage.name, f"{name}_u", update=0))
    position = kernel.graph[stage.calls[1]]
    loop = next(each for each in position.loops if each.axis == stage.loops[0].axis)
    vector = vectors(position.name, loop.name, loop.extent, kernel.lanes(position.bits))
    rest = tuple(other.name for other in position.loops if other is not loop)
    steps += [ComputeAt(position.name, stage.name, at), *vector.steps]
    steps.append(Reorder(position.name, (*vector.loops, *rest)))
    return Cut(tuple(steps), (f"{name}_u", name))


def _lies_across(kernel: CpuKernel, stage: Stage, column: str) -> bool:
    """Whether more of what scatter `stage` stores lies along its innermost loop than along axis `column`."""
    value = kernel.graph[stage.calls[0]]
    lies = [each.contiguous for each in (value, *kernel.behind([value]))]
    along, across = (sum(each.get(axis, 0) for each in lies) for axis in (column, stage.updates[0].axis))
    return across > along


def _in_blocks(kernel: CpuKernel, stage: Stage) -> list[Step]:
    """Steps that compute what is stored, and where, in vectors along blocks of the innermost loop."""
    if not stage.updates or stage.updates[0].extent < _SHORTEST:
        return []
    along = stage.updates[0]
    if along.axis in stage.distinct:
        lanes = f"{along.name}_v"
        return [
            Split(stage.name, along.name, f"{along.name}_o", lanes, kernel.lanes(stage.bits), update=0),
            AllowRaceConditions(stage.name),
            Vectorize(stage.name, lanes, update=0),
        ]
    why = f"max pooling's gradient: 0.14 of the time of one point after another; {_BLOCK} points stay in the L1 cache"
    points = min(kernel.choices.number(BLOCK, _BLOCK, why, at=stage.name), along.extent)
    if points == 1:
        return []
    blocks, within, single = (f"{along.name}_{part}" for part in ("o", "i", "u"))
    steps: list[Step] = [Split(stage.name, along.name, blocks, within, points, update=0)]
    if along.fixed and points % _UNROLLED == 0:
        steps += [Split(stage.name, within, within, single, _UNROLLED, update=0), Unroll(stage.name, single, update=0)]
    value, position = (kernel.graph[name] for name in stage.calls)
    # An element that only moves, and a place that the last one and a number make, are at hand sooner than stored ones.
    moves = not value.calls and value.work <= COPY_WORK and along.axis in value.contiguous
    on_line = along.axis in position.strided
    for needed in (*(() if moves else (value,)), *(() if on_line else (position,))):
        name = needed.name
        steps.append(ComputeAt(name, stage.name, blocks))
        loop = next((loop for loop in needed.loops if loop.axis == along.axis), None)
        if loop is not None:
            vector = vectors(name, loop.name, points, kernel.lanes(needed.bits))
            rest = tuple(other.name for other in needed.loops if other is not loop)
            steps += [*vector.steps, Reorder(name, (*vector.loops, *rest))]
    return steps
