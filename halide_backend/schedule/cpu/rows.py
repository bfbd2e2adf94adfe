"""Rows in parallel, each row's loops vectorized along memory: softmax, layer norm, sums over the last dimension.

Of short rows, what is made of what each was reduced to takes a good part of the time, a logarithm for example: it is
computed for a vector of rows at a time.
"""

from __future__ import annotations

import math

from halide_backend.schedule.cpu.kernel import (
    MANY_REGISTERS,
    CpuKernel,
    Cut,
    Level,
    Nest,
    Tasks,
    has,
    loop_along,
    vectors,
)
from halide_backend.schedule.cpu.stored import is_gathered, is_stored
from halide_backend.schedule.cpu.tails import tail_of
from halide_backend.schedule.cpu.turned_operands import tiles_of_task, turned_operands
from halide_backend.schedule.cpu.vector_reductions import is_horizontal, lies_close
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import ComputeWith, NeverPartition, Reorder, Split, Step, Unroll

UNROLL = Knob("rows.unroll", (1, 2, 4), "vectors of a row of an output that are computed together")
PARTITION = Knob(
    "rows.partition", (False, True), "vectors that lie within a row are a loop of their own, without a guard"
)


ACROSS = Knob(
    "rows.across", (False, True), "compute what is made of the results of rows for a vector of rows at a time"
)

#: Operations on what a row is reduced to, and elements of a row, between which they take a good part of the time; less
#: is enough where the reductions of several rows end in the same instructions.
_RESULT_WORK, _SHORT = 12, 1024

#: Vector operations of a row that is computed without a loop. One with functions in it fills the window of instructions
#: that a processor looks at by itself: unrolled, softmax of 100 took 1.1 times as long on a Zen 5.
ROW_WORK = 128

#: What a kernel of such rows has.
_ROLES = {Role.INLINE, Role.REDUCTION, Role.OUTPUT}


def rows(kernel: CpuKernel) -> Nest:
    """The rows of all outputs in one loop nest."""
    parent, outer = kernel.parent, kernel.outer
    work = max(1, kernel.work // math.prod(loop_along(parent, axis).extent for axis in outer))
    tasks = _tasks(kernel, work)
    if across := _across(kernel):
        return _results_in_vectors(kernel, across, tasks)
    steps: list[Step] = []
    turned = kernel.transposition
    if turned is not None and tasks.axis == turned.across:
        tasks = Tasks(f"{turned.across}_o", tiles_of_task(loop_along(parent, turned.across), turned.side, tasks.grain))
    block = _block(kernel)
    if block > 1 and tasks.axis == outer[-1]:
        tasks = Tasks(f"{outer[-1]}_o", max(1, tasks.grain // block))
    for stage in kernel.outputs:
        row = _row(kernel, stage)
        steps += row.steps
        order = [*row.loops]
        outside = list(reversed(outer))
        if turned is not None:
            steps.append(Split(stage.name, turned.across, f"{turned.across}_o", f"{turned.across}_s", turned.side))
            order.append(f"{turned.across}_s")
            outside[0] = f"{turned.across}_o"
        if block > 1:
            steps.append(Split(stage.name, outer[-1], f"{outer[-1]}_o", f"{outer[-1]}_s", block))
            order.append(f"{outer[-1]}_s")
            outside[0] = f"{outer[-1]}_o"
        cut = tasks.cut(stage.name, outside)
        steps += [*cut.steps, Reorder(stage.name, (*order, *cut.loops)), *tasks.shared(stage.name)]
    if turned is not None:
        level = Level(parent.name, f"{turned.across}_s")
        of_rows = f"{turned.across}_o"
        steps += turned_operands(kernel, turned, Level(parent.name, tasks.inner if tasks.axis == of_rows else of_rows))
        steps += _together(kernel, level)
        return Nest(tuple(steps), level, single=(turned.across,))
    if block > 1:
        level, blocks = Level(parent.name, f"{outer[-1]}_s"), f"{outer[-1]}_o"
        around_block = Level(parent.name, tasks.inner if tasks.axis == blocks else blocks)
        steps += _together(kernel, level)
        return Nest(tuple(steps), level, storage=around_block, rows=block)
    innermost = tasks.axis == outer[-1]
    level = Level(parent.name, tasks.inner if innermost else outer[-1])
    storage = Level(parent.name, tasks.outer) if innermost and tasks.inner != tasks.outer else None
    steps += _together(kernel, level)
    around = tuple((axis, Level(parent.name, tasks.inner if axis == tasks.axis else axis)) for axis in outer)
    return Nest(tuple(steps), level, around, tasks.axis, storage, single=kernel.single(tasks, outer))


def _together(kernel: CpuKernel, level: Level) -> list[Step]:
    """Steps that compute the other outputs in the parent's loops, down to that of `level`."""
    others = (stage for stage in kernel.outputs if stage is not kernel.parent)
    return [ComputeWith(stage.name, level.parent, level.var) for stage in others]


def _block(kernel: CpuKernel) -> int:
    """Rows for which what is gathered is computed at a time: a vector of them if there are such, else one."""
    kept = (stage for stage in kernel.graph.stages if is_gathered(stage) and stage.name in kernel.inside)
    held = [stage for stage in kept if is_stored(kernel, stage)]
    if not (held and kernel.outer) or kernel.transposition is not None:
        return 1
    row, lanes = kernel.outer[-1], max(kernel.lanes(stage.bits) for stage in held)
    if not all(has(stage, row) and loop_along(stage, row).fixed for stage in (*held, *kernel.outputs)):
        return 1
    points = [math.prod(each.extent for each in stage.loops if each.axis not in kernel.outer) for stage in held]
    held_bytes = sum(lanes * count * stage.bits // 8 for count, stage in zip(points, held, strict=True))
    whole = loop_along(kernel.parent, row).extent % lanes == 0
    return lanes if whole and held_bytes <= kernel.device.l1_bytes else 1


def _across(kernel: CpuKernel) -> str:
    """The axis of short rows if what is made of the results of each, outputs or what these share, is computed in
    vectors across them, else ""."""
    graph, outer, lanes = kernel.graph, kernel.outer, kernel.lanes(32)
    reductions = [stage for stage in graph.stages if stage.role is Role.REDUCTION]
    shared = [stage for stage in graph.stages if stage.role is Role.SHARED]
    alone = not shared and all(_is_of_rows(kernel, stage) for stage in kernel.outputs)
    of_rows = kernel.outputs if alone else shared
    roles = {stage.role for stage in graph.stages} - {Role.SHARED}
    if not (outer and reductions and of_rows and roles <= _ROLES and kernel.transposition is None):
        return ""
    if not all(_is_of_rows(kernel, stage) for stage in (*reductions, *of_rows)):
        return ""
    loop = loop_along(kernel.parent, outer[-1])
    along = all(kernel.contiguous in {each.axis for each in stage.updates} for stage in reductions)
    elements = max(math.prod(each.extent for each in stage.updates) for stage in reductions)
    work = max(map(kernel.inlined_work, of_rows))
    whole = (loop.fixed and loop.extent % lanes == 0) or _tail(kernel, loop) != Split.tail
    whole = whole or loop.axis in graph.clamped
    fits = whole and all(stage.bits <= 32 for stage in (*kernel.outputs, *of_rows))
    # Rows of results are loaded again for these.
    fits = fits and (alone or lanes * elements * 4 <= kernel.device.l1_bytes)
    if not (along and fits and (alone or lanes <= elements) and elements <= _SHORT):
        return ""
    memory = [(stage, each) for stage in reductions for each in stage.updates if each.axis == kernel.contiguous]
    # Of 8 lanes a tree is as short: sums of rows of 8 to 48 took 1.03 to 1.15 times as long together (Zen 3).
    wide = kernel.device.vector_registers >= MANY_REGISTERS
    together = (
        alone
        and wide
        and all(
            each.extent >= lanes and lies_close(each, stage.bits) and not is_horizontal(stage.operators, each)
            for stage, each in memory
        )
    )
    why = f"{work} operations on what {elements} elements are reduced to{', several rows at a time' * together}"
    return outer[-1] if kernel.choices.flag(ACROSS, together or work >= _RESULT_WORK, why) else ""


def _is_of_rows(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether `stage` has one result for each row."""
    return {loop.axis for loop in stage.loops} == set(kernel.outer)


def _tail(kernel: CpuKernel, across: Loop) -> str:
    """The tail of the split into vectors of rows: functions in a guard would be computed for each row by itself."""
    lanes, stage = kernel.lanes(32), kernel.parent
    again = len(kernel.outputs) == 1 and not (stage.overwrites or stage.replaces) and across.extent >= lanes
    return "ShiftInwards" if again and (across.extent % lanes or not across.fixed) else Split.tail


def _results_in_vectors(kernel: CpuKernel, across: str, tasks: Tasks) -> Nest:
    """The loop nest of outputs for a vector of rows along `across` at a time, with the reductions of as many rows, and
    what the outputs share of their results, around it."""
    parent, lanes, vectors_of = kernel.parent, kernel.lanes(32), f"{across}_o"
    if tasks.axis == across:
        tasks = Tasks(vectors_of, max(1, tasks.grain // lanes))
    steps: list[Step] = []
    clamped = across in kernel.graph.clamped
    for stage in kernel.outputs:
        loop = loop_along(stage, across)
        tail = Split.tail if clamped else _tail(kernel, loop)
        cut = tasks.cut(stage.name, (vectors_of, *reversed(kernel.outer[:-1])))
        if _is_of_rows(kernel, stage):
            vector = vectors(stage.name, across, loop.extent, lanes, tail=tail)
            steps += vector.steps
            order = [vector.loops[0]]
        else:
            row = _row(kernel, stage)
            steps += [*row.steps, Split(stage.name, across, vectors_of, f"{across}_s", lanes, tail=tail)]
            order = [*row.loops, f"{across}_s"]
        steps += [*cut.steps, Reorder(stage.name, (*order, *cut.loops)), *tasks.shared(stage.name)]
        if clamped or tail != Split.tail:
            # In two loops of one text LLVM keeps what a row leaves behind a vector in memory: sums of rows of 33 took
            # 3.7 times as long, by a script.
            steps.append(NeverPartition(stage.name, cut.loops[0]))
    level = Level(parent.name, tasks.inner if tasks.axis == vectors_of else vectors_of)
    steps += _together(kernel, level)
    return Nest(tuple(steps), level, room={across: lanes} if clamped else {}, across=across)


def _row(kernel: CpuKernel, stage: Stage) -> Cut:
    """Cut the loops of output `stage` along the elements of a row into vectors."""
    inner = [loop for loop in stage.loops if loop.axis not in kernel.outer]
    if not inner:
        return Cut((), ())
    lanes = kernel.lanes(stage.bits)
    tail = tail_of(kernel, stage, inner[0].axis, lanes)
    vector = vectors(stage.name, inner[0].name, inner[0].extent, lanes, tail=tail)
    unrolled = _unrolled(kernel, stage, inner[0], vector.loops[1])
    steps = [*vector.steps, *unrolled]
    if not kernel.choices.flag(PARTITION, True, "as Halide does"):
        steps.append(NeverPartition(stage.name, vector.loops[1]))
    names = (vector.loops[0], *([f"{vector.loops[1]}_u"] if unrolled else []), vector.loops[1])
    return Cut(tuple(steps), (*names, *(loop.name for loop in inner[1:])))


def _unrolled(kernel: CpuKernel, stage: Stage, loop: Loop, vectors_of: str) -> list[Step]:
    """Steps that compute several of the vectors of an output's `loop`, along `vectors_of`, together."""
    lanes = kernel.lanes(stage.bits)
    whole = -(-loop.extent // lanes) if is_short(kernel, loop, lanes) else 1
    why = "all of a short row, which stays in registers" if whole > 1 else "a vector at a time: the loop costs little"
    count = kernel.choices.number(UNROLL, whole, why)
    if count == 1:
        return []
    return [Split(stage.name, vectors_of, vectors_of, f"{vectors_of}_u", count), Unroll(stage.name, f"{vectors_of}_u")]


def _tasks(kernel: CpuKernel, work: int) -> Tasks:
    """The outer axis that threads share; one of its points has `work` operations."""
    if not kernel.parallel:
        return Tasks()
    outer, parent = kernel.outer, kernel.parent
    chosen = next((axis for axis in outer if loop_along(parent, axis).extent >= 8), None)
    if chosen is None:
        chosen = max(outer, key=lambda axis: loop_along(parent, axis).extent)
    below = outer[outer.index(chosen) + 1 :]
    if kernel.is_uncounted(chosen):
        return Tasks(chosen)  # Several steps in a task would have a guard.
    inside = work * math.prod(loop_along(parent, axis).extent for axis in below)
    return Tasks(chosen, kernel.grain(loop_along(parent, chosen).extent, inside))


def is_short(kernel: CpuKernel, loop: Loop, lanes: int) -> bool:
    """Whether a row along `loop` is a few vectors of little work: half the registers hold it until it is read again."""
    rows = math.prod(loop_along(kernel.parent, axis).extent for axis in kernel.outer)
    few = -(-loop.extent // lanes) <= kernel.device.vector_registers // 2
    return loop.fixed and few and kernel.work <= ROW_WORK * lanes * rows
