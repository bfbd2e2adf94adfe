"""Rules for CPUs: what becomes of the loops of a kernel, from the structure of its stages alone.

The rules know the width of a vector register and nothing of the number of threads: parallel loops have more steps than
any machine has cores and the runtime gives each thread a contiguous share. The numbers are explained in
docs/design/schedules.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from halide_backend.schedule.cpu.checks import checked_beside
from halide_backend.schedule.cpu.column_blocks import column_blocks
from halide_backend.schedule.cpu.column_reductions import reduce_columns
from halide_backend.schedule.cpu.functions import function, rows_of
from halide_backend.schedule.cpu.grouped_columns import groups, reduce_groups
from halide_backend.schedule.cpu.kernel import CpuKernel, Nest
from halide_backend.schedule.cpu.narrow_columns import reduce_rows_side_by_side, rows_side_by_side
from halide_backend.schedule.cpu.rows import is_short, rows
from halide_backend.schedule.cpu.scans import scan, scanned
from halide_backend.schedule.cpu.scatters import scatter
from halide_backend.schedule.cpu.separate import own_nest, separate_nests
from halide_backend.schedule.cpu.single_elements import one_by_one
from halide_backend.schedule.cpu.specialized import specialized
from halide_backend.schedule.cpu.stored import is_of_few, is_stored, stored, stored_once
from halide_backend.schedule.cpu.transposes import transposes
from halide_backend.schedule.cpu.vector_reductions import reduce_in_lanes
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.stage import Role, Stage, StageGraph
from halide_backend.schedule.steps import ComputeRoot, RFactor, Step

#: The loop nest of the outputs is the first rule's that applies; the last one always does.
_RULES: tuple[Callable[[CpuKernel], Nest | None], ...] = (scanned, separate_nests, transposes, column_blocks, rows)


def cpu_steps(graph: StageGraph, mapping: Mapping, device: Cpu, choices: Choices) -> tuple[Step, ...]:
    """The steps that the rules choose for `graph`, which was written for `mapping`, on `device`.

    Raises:
        IllegalPlan: a requested knob has no such value.
    """
    kernel = CpuKernel(graph, device, choices, mapping.transposition)
    nests = (rule(kernel) for rule in _RULES) if kernel.outputs else iter(())
    nest = next((nest for nest in nests if nest is not None), Nest(()))
    checked = checked_beside(kernel, nest.steps) if kernel.outputs else []
    beside = {step.func for step in checked}
    steps = [*(one_by_one(kernel, nest.steps) if kernel.outputs else nest.steps), *checked]
    # What is the same along an outer axis is computed once, before the outputs, with all that it needs.
    once = [stage for stage in graph.stages if is_of_few(kernel, stage) and is_stored(kernel, stage)]
    apart = kernel.invariant.union(stage.name for stage in kernel.behind(once))
    for stage in graph.stages:
        if stage in once:
            steps += stored_once(kernel, stage)
        elif stage.name not in beside:
            steps += _stage(kernel, stage, nest if stage.name in kernel.inside - apart else Nest(()))
    for stage in graph.outputs:
        if stage.role is Role.SCATTER:
            steps += scatter(kernel, stage)
    return (*specialized(kernel, steps), *steps)


def _stage(kernel: CpuKernel, stage: Stage, nest: Nest) -> list[Step]:
    """Steps of a stage that is no output; `nest` is that of the outputs, and empty if something else needs it, too."""
    level = nest.level
    if stage.role in (Role.SERIAL, Role.SNAPSHOT):
        return [ComputeRoot(stage.name), *own_nest(kernel, stage)]
    if stage.role is Role.SCAN:
        return scan(kernel, stage, nest)
    if stage.role is Role.REDUCTION:
        return _reduction(kernel, stage, nest)
    if rows_of(kernel, stage):
        return function(kernel, stage, nest) if stage.shifted and stage.role is Role.SHARED else []
    if stage.role in (Role.SHARED, Role.PRESERVED) and level is not None and is_stored(kernel, stage):
        return stored(kernel, stage, nest)
    return []


def _reduction(kernel: CpuKernel, stage: Stage, nest: Nest) -> list[Step]:
    level = nest.level
    if nest.around and (group := groups(kernel)):
        return reduce_groups(kernel, stage, nest, group)
    over = [loop.axis for loop in sorted(stage.updates, key=lambda loop: loop.extent, reverse=True)]
    contiguous = _contiguous(kernel, stage)
    if contiguous not in over and (count := rows_side_by_side(kernel, stage)) > 1:
        return reduce_rows_side_by_side(kernel, stage, level, count)
    if contiguous not in over and stage.loops:
        steps = reduce_columns(kernel, stage, level, room=nest.room.get(kernel.contiguous, 0))
        parts = [step.into for step in steps if isinstance(step, RFactor)]
        return [*steps, *nest.bounded(stage, [stage.name, *parts])]
    # Of outputs that are computed together in tiles Halide cannot prove that they need the same row.
    in_tiles = kernel.transposition is not None and not nest.single
    along, lanes = contiguous if contiguous in over else over[0], kernel.lanes(stage.bits)
    return reduce_in_lanes(
        stage,
        along=along,
        lanes=lanes,
        short=level is not None and all(is_short(kernel, loop, lanes) for loop in stage.updates),
        at=(level.parent, level.var) if level else None,
        row=next((loop.name for loop in stage.loops if level and loop.axis == nest.across), ""),
        together=not _of_each_other(kernel),
        several=any(level is None or in_tiles or loop.axis not in kernel.graph.outer for loop in stage.loops),
        parallel=level is None and kernel.parallel,
        choices=kernel.choices,
        bounded=nest.bounded,
    )


def _of_each_other(kernel: CpuKernel) -> bool:
    """Whether a reduction reads what is stored of another one's results, as a variance the mean."""
    reductions = [stage for stage in kernel.graph.stages if stage.role is Role.REDUCTION]
    return any(stage.role is Role.SHARED for stage in kernel.behind(reductions))


def _contiguous(kernel: CpuKernel, stage: Stage) -> str:
    """The kernel's contiguous axis, or that along which most bytes of reduction `stage` lie if it has no such loop, or
    reduces along it what does not lie along it."""
    axes = {loop.axis for loop in (*stage.loops, *stage.updates)}
    votes = Counter[str]()
    for each in (stage, *kernel.behind([stage])):
        votes.update({axis: size for axis, size in each.contiguous.items() if axis in axes})
    across = kernel.contiguous in {loop.axis for loop in stage.updates} and votes and not votes[kernel.contiguous]
    if kernel.contiguous in axes and (not across or kernel.transposition is not None):
        return kernel.contiguous
    return max(votes, key=votes.__getitem__, default=kernel.contiguous)
