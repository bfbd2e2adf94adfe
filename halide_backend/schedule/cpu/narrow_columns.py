"""Reductions of a few columns, rows of which adjoin in memory: the columns of several rows lie side by side and are
reduced in whole vectors, as so many columns are, then those of each.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.schedule.cpu.accumulators import HELD, longest
from halide_backend.schedule.cpu.column_reductions import reduce_columns
from halide_backend.schedule.cpu.kernel import CpuKernel, Level, vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import AlignStorage, ComputeAt, ComputeRoot, Reorder, RFactor, Split, Step, Unroll

ROWS = Knob(
    "narrow_columns.rows", (1, 2, 4, 8, 16, 32, 64), "adjacent rows of a few columns that are reduced side by side"
)

#: Steps over so many rows from which on adding up the sums of all of them takes little time.
_STEPS = 16


def rows_side_by_side(kernel: CpuKernel, stage: Stage) -> int:
    """How many adjacent rows of reduction `stage` are reduced side by side, 1 if its columns are vectors enough."""
    column = next((loop for loop in stage.loops if loop.axis == kernel.contiguous), None)
    if column is None or not column.fixed or len(stage.updates) == 0:
        return 1
    rows, lanes = longest(stage.updates), kernel.lanes(stage.bits)
    if column.extent % lanes == 0 or column.extent >= HELD * lanes:
        return 1
    if not all(_adjoin(each, column, rows) for each in kernel.behind([stage])):
        return 1
    whole = lanes // math.gcd(lanes, column.extent)
    count = whole * max(1, HELD * lanes // (whole * column.extent))
    if rows.extent < _STEPS * count:
        return 1
    why = f"{column.extent} columns are {column.extent / lanes:.1f} vectors, those of {count} rows whole ones"
    return kernel.choices.number(ROWS, count, why, at=stage.name)


def _adjoin(stage: Stage, column: Loop, rows: Loop) -> bool:
    """Whether all rows that `stage` loads adjoin."""
    loaded = stage.runs.get((column.axis, rows.axis), 0)
    return loaded == stage.across.get(rows.axis, 0) * stage.points and not stage.contiguous.get(rows.axis)


def reduce_rows_side_by_side(kernel: CpuKernel, stage: Stage, level: Level | None, count: int) -> list[Step]:
    """Steps that compute reduction `stage` at `level`, in vectors of the columns of `count` rows."""
    rows = longest(stage.updates)
    several, outer, inner = f"{stage.name}_several", f"{rows.name}_o", f"{rows.name}_s"
    beside = Loop("beside", count, "")
    steps = Loop(outer, -(-rows.extent // count), rows.axis, rows.fixed)
    parts = replace(
        stage,
        name=several,
        loops=(*stage.loops, beside),
        updates=tuple(steps if loop is rows else loop for loop in stage.updates),
    )
    column, lanes = next(loop for loop in stage.loops if loop.axis == kernel.contiguous), kernel.lanes(stage.bits)
    total: list[Step] = []
    if column.extent >= lanes // 2:
        whole = [AlignStorage(stage.name, column.name, lanes)] if column.extent % lanes else []
        vector = [vectors(stage.name, column.name, column.extent, lanes, update) for update in (None, 0)]
        total = [*whole, *(step for each in vector for step in each.steps)]
        total.append(Reorder(stage.name, (*vector[1].loops, inner), update=0))
    return [
        ComputeAt(stage.name, level.parent, level.var) if level else ComputeRoot(stage.name),
        Split(stage.name, rows.name, outer, inner, count, update=0),
        RFactor(stage.name, inner, beside.name, several),
        *total,
        Unroll(stage.name, inner, update=0),
        *reduce_columns(kernel, parts, level, beside, at_a_time=count),
    ]
