"""Values that several uses share: computed once, at the level that the outputs have in common."""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import PARALLEL_WORK, CpuKernel, Nest, has, vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.mapping.materialise import SHORT_ROW
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import (
    AlignStorage,
    BoundExtent,
    BoundStorage,
    ComputeAt,
    ComputeRoot,
    Parallel,
    Reorder,
    ReorderStorage,
    Step,
    StoreAt,
    Vectorize,
)

STORED = Knob("stored.stores", (False, True), "keep a value that several uses share, instead of computing it for each")


def is_stored(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether `stage` is computed once for all of its uses; old values of what is overwritten have to be."""
    apart = not _is_of_one_reduction(kernel, stage)
    why = "each of its uses would compute it again" if apart else "all of its uses are in one step of a reduction"
    return stage.role is Role.PRESERVED or kernel.choices.flag(STORED, apart, why, at=stage.name)


def _is_of_one_reduction(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether each step of one reduction, of several values perhaps, needs one point of `stage`, and nothing else does:
    a kernel of it has no more to compute without a Func."""
    ends, stack = [], [stage]
    while stack:
        users = kernel.graph.consumers(stack.pop().name)
        stack += [user for user in users if user.role is Role.INLINE]
        ends += [user for user in users if user.role is not Role.INLINE]
    if len({end.name for end in ends}) != 1 or ends[0].role is not Role.REDUCTION or stage.shifted:
        return False
    return {loop.axis for loop in stage.loops} == {loop.axis for loop in ends[0].loops + ends[0].updates}


def is_kept(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether `stage` is a reduction, or stored for what uses it."""
    return stage.role is Role.REDUCTION or (stage.role in (Role.SHARED, Role.PRESERVED) and is_stored(kernel, stage))


def is_gathered(stage: Stage) -> bool:
    """Whether `stage` holds elements that lie apart along each of its axes, for several uses."""
    return stage.role is Role.SHARED and not stage.calls and not stage.contiguous and bool(stage.across)


def stored_in_blocks(stage: Stage, nest: Nest, row: str) -> list[Step]:
    """Steps that compute gathered `stage` for a block of rows of `nest`, in vectors across them along axis `row`: a
    line of memory has elements of several rows, and would be fetched for each of them."""
    assert nest.storage is not None
    across = next(loop for loop in stage.loops if loop.axis == row)
    rest = [loop.name for loop in stage.loops if loop is not across]
    vector = vectors(stage.name, across.name, nest.rows, nest.rows)
    return [
        ComputeAt(stage.name, nest.storage.parent, nest.storage.var),
        *vector.steps,
        Reorder(stage.name, (*vector.loops, *rest)),
    ]


def stored(kernel: CpuKernel, stage: Stage, nest: Nest) -> list[Step]:
    """Steps that compute `stage` at the level of `nest`, in vectors along memory."""
    assert nest.level is not None
    if nest.rows > 1 and is_gathered(stage):
        return stored_in_blocks(stage, nest, kernel.outer[-1])
    steps: list[Step] = [ComputeAt(stage.name, nest.level.parent, nest.level.var)]
    if nest.across:
        across = next(loop for loop in stage.loops if loop.axis == nest.across)
        vector = vectors(stage.name, across.name, across.extent, kernel.lanes(32))
        return [*steps, *nest.bounded(stage, [stage.name]), *vector.steps]
    inner = [loop for loop in stage.loops if loop.axis not in kernel.graph.outer]
    if nest.storage and inner and stage.role is Role.SHARED and not all(loop.fixed for loop in stage.loops):
        # What has no fixed size is no array on the stack: one allocation for all rows of a task.
        steps.append(StoreAt(stage.name, nest.storage.parent, nest.storage.var))
    # At the end of a loop fewer are computed; without a fixed size each vector would be allocated.
    unknown = [loop for loop in stage.loops if loop.axis in nest.room and not loop.fixed]
    steps += [BoundStorage(stage.name, loop.name, nest.room[loop.axis]) for loop in unknown]
    steps += nest.bounded(stage, [stage.name])
    columns = [loop for loop in stage.loops if loop.axis == kernel.contiguous]
    if list(stage.loops) == columns and [loop.axis for loop in columns if loop.axis in kernel.graph.clamped]:
        (whole,) = columns
        # Of rows that are typically shorter, vectors of results are as well.
        if nest.room.get(whole.axis) == kernel.lanes(stage.bits) <= whole.extent:
            return [
                *steps,
                BoundExtent(stage.name, whole.name, nest.room[whole.axis]),
                Vectorize(stage.name, whole.name),
            ]
    loop = next(iter(columns or inner), None)
    if loop is not None and loop.extent >= 4:
        turned, lanes = kernel.transposition, kernel.lanes(stage.bits)
        if turned is not None and not turned.results and not turned.reduced:
            lanes = min(lanes, turned.side)  # One tile is computed at a time.
        vector = vectors(stage.name, loop.name, loop.extent, lanes)
        rest = [other.name for other in stage.loops if other is not loop]
        steps += [*vector.steps, Reorder(stage.name, (*vector.loops, *rest))]
        if loop is not stage.loops[0]:
            steps.append(ReorderStorage(stage.name, (loop.name, *rest)))
        if loop.fixed and loop.extent < lanes:
            # Room for the whole vector, so that what reads a part of it need not wait (build/llvm/partial_vectors.py).
            steps.append(AlignStorage(stage.name, loop.name, lanes))
    return steps


def is_of_few(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether `stage` is shared, has the contiguous axis and no axis of the rows, or is one of short rows, and needs
    neither what is reduced nor old values, which are read beside the output that overwrites them."""
    if stage.role is not Role.SHARED or not kernel.outputs or not stage.loops:
        return False
    missing = [loop for loop in kernel.parent.loops if not has(stage, loop.axis)]
    apart = all(each.role not in (Role.REDUCTION, Role.PRESERVED, Role.STAGED_LOAD) for each in kernel.behind([stage]))
    rows = [loop for loop in missing if loop.axis == kernel.contiguous and loop.extent <= SHORT_ROW]
    return bool(missing) and apart and (has(stage, kernel.contiguous) or bool(rows))


def stored_once(kernel: CpuKernel, stage: Stage) -> list[Step]:
    """Steps that compute `stage` before everything else, shared among threads if it is long."""
    loop = stage.loops[0]
    vector = vectors(stage.name, loop.name, loop.extent, kernel.lanes(stage.bits))
    steps = [ComputeRoot(stage.name), *vector.steps]
    if kernel.parallel and stage.points >= PARALLEL_WORK:
        steps.append(Parallel(stage.name, stage.loops[-1].name if len(stage.loops) > 1 else vector.loops[1]))
    return steps
