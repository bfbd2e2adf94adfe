"""Reductions of groups of a few adjacent columns, as of the channels of a group: the columns of all groups lie side by
side in memory and are reduced in vectors, as columns are, then those of each group.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from halide_backend.schedule.cpu.column_reductions import reduce_columns
from halide_backend.schedule.cpu.kernel import CpuKernel, Level, Nest
from halide_backend.schedule.cpu.stored import is_kept
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import ComputeAt, ComputeRoot, RFactor, Step, Unroll

TOGETHER = Knob("grouped_columns.together", (False, True), "reduce the columns of all groups side by side")

#: Rows of a column from which on the columns of a group, which are stored on the way, are few.
_ROWS = 32

_OPERATORS = frozenset({"sum", "prod", "min", "max"})


def groups(kernel: CpuKernel) -> str:
    """The axis of the groups, "" if there are none, or each is reduced by itself."""
    reductions = [stage for stage in kernel.graph.stages if stage.role is Role.REDUCTION]
    if any(stage.role is not Role.REDUCTION and is_kept(kernel, stage) for stage in kernel.behind(reductions)):
        return ""
    runs: dict[str, int] = {}
    for stage in kernel.graph.stages:
        for (column, group), size in stage.runs.items():
            if column == kernel.contiguous and group in kernel.graph.outer:
                runs[group] = runs.get(group, 0) + size
    group = max(runs, key=lambda axis: runs[axis], default="")
    if not group or not reductions or not all(_fits(kernel, stage, group) for stage in reductions):
        return ""
    why = "a group has fewer columns than a vector elements"
    return group if kernel.choices.flag(TOGETHER, True, why) else ""


def _fits(kernel: CpuKernel, stage: Stage, group: str) -> bool:
    """Whether `stage` reduces fewer columns than a vector has lanes, in many rows, for each group, and the columns of
    all groups are half a vector at least: then two rows of them are one."""
    columns = [loop for loop in stage.updates if loop.axis == kernel.contiguous]
    rows = max((loop.extent for loop in stage.updates if loop not in columns), default=1)
    beside = [loop for loop in stage.loops if loop.axis == group]
    return (
        _OPERATORS.issuperset(stage.operators)
        and len(columns) == len(beside) == 1
        and columns[0].fixed
        and beside[0].fixed
        and columns[0].extent < kernel.lanes(stage.bits) <= 2 * columns[0].extent * beside[0].extent
        and rows >= _ROWS
    )


def reduce_groups(kernel: CpuKernel, stage: Stage, nest: Nest, group: str) -> list[Step]:
    """Steps that compute reduction `stage` for all groups along axis `group`, around the loop of `nest` over these."""
    level = _around(nest, group)
    column = next(loop for loop in stage.updates if loop.axis == kernel.contiguous)
    beside = next(loop for loop in stage.loops if loop.axis == group)
    columns = f"{stage.name}_columns"
    member = Loop("column", column.extent, column.axis)
    inner = replace(
        stage,
        name=columns,
        loops=(member, *stage.loops),
        updates=tuple(loop for loop in stage.updates if loop is not column),
    )
    return [
        ComputeAt(stage.name, level.parent, level.var) if level else ComputeRoot(stage.name),
        RFactor(stage.name, column.name, member.name, columns),
        Unroll(stage.name, column.name, update=0),
        *reduce_columns(kernel, inner, level, beside),
    ]


def _around(nest: Nest, group: str) -> Level | None:
    """The innermost loop around the one over the groups, if threads share it or one around it; else None."""
    outside = list(takewhile(lambda each: each[0] != group, nest.around))
    return outside[-1][1] if nest.threads in {axis for axis, _ in outside} else None
