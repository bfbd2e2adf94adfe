"""Stores at computed positions: rows one after another, since two may meet at one place, columns side by side.

Where there are no columns, points that are known to lie side by side are stored in vectors, though rows of them
overlap. Of all others the values and positions of a block are computed in vectors before they are stored one by one.
"""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import CpuKernel, vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Stage
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

#: Points of a block, and the shortest loop that has one.
_BLOCK, _SHORTEST = 256, 8

#: Points that are stored without a loop: its count and its branch take as long as a store.
_UNROLLED = 4


def scatter(kernel: CpuKernel, stage: Stage) -> list[Step]:
    """Steps of the update of `stage`; none where it has neither columns nor points worth a vector."""
    columns = [loop for loop in stage.loops if loop.name != "p"]
    if not columns:
        return _in_blocks(kernel, stage)
    if columns[0].extent < 4:
        return []
    column, lanes = columns[0], kernel.lanes(stage.bits)
    # Half a page of float32, with which index_add is at 0.93 of C++, with 256 at 0.86; two blocks for threads to share.
    blocks = min(max(column.extent // 512, 2), 4)
    block = max(lanes, -(-column.extent // blocks // 16) * 16)
    vector = vectors(stage.name, f"{column.name}_i", block, lanes, update=0)
    order, tile = (*vector.loops, *(loop.name for loop in stage.updates), f"{column.name}_b"), list[Step]()
    if stage.updates and _lies_across(kernel, stage, column.axis):
        (first, several), (row, *others) = vector.loops, stage.updates
        rows, within = f"{row.name}_o", f"{row.name}_i"
        tile = [Split(stage.name, row.name, rows, within, min(_TILE, row.extent), update=0)]
        order = (first, within, several, rows, *(loop.name for loop in others), f"{column.name}_b")
    steps: list[Step] = [
        Split(stage.name, column.name, f"{column.name}_b", f"{column.name}_i", block, 0),
        *vector.steps,
        *tile,
        Reorder(stage.name, order, update=0),
    ]
    if kernel.parallel:
        steps.append(Parallel(stage.name, f"{column.name}_b", update=0))
    return steps


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
    for name in stage.calls:
        needed = kernel.graph[name]
        steps.append(ComputeAt(name, stage.name, blocks))
        loop = next((loop for loop in needed.loops if loop.axis == along.axis), None)
        if loop is not None:
            vector = vectors(name, loop.name, points, kernel.lanes(needed.bits))
            rest = tuple(other.name for other in needed.loops if other is not loop)
            steps += [*vector.steps, Reorder(name, (*vector.loops, *rest))]
    return steps
