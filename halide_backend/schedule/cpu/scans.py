"""Scans: one step after another along the scanned axis, vectors across it.

Where memory runs along another axis, a block of columns takes one row after another. Along memory, chunks of a row are
scanned by themselves, in registers, and each is combined with all before it; where that is much work, several rows are
scanned side by side, each in a lane of a vector.
"""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import COPY_WORK, CpuKernel, Cut, Level, Nest, Tasks, has, loop_along, vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import (
    ComputeAt,
    ComputeRoot,
    ComputeWith,
    Reorder,
    ReorderStorage,
    Split,
    Step,
    Unroll,
    Vectorize,
)

COLUMNS = Knob("scans.columns", (16, 32, 64, 128, 256, 512, 1024), "columns that are scanned side by side")

ROWS = Knob("scans.rows", (1, 2, 4, 8, 16), "rows of memory that are scanned side by side")

#: Chunks of a row, and rows, up to which each chunk has code of its own: at which of them the row ends is known then.
#: Halide takes no last step off so short a loop, and LLVM may branch for each element instead: C++'s time over ours was
#: 0.36 and 1.08 for rows of 9 floats, 0.48 and 0.81 for 15, 0.97 and 1.06 for 31 (in turns by a script, a Zen 3).
_FEW_CHUNKS, _FEW_ROWS = 4, 4


def scanned(kernel: CpuKernel) -> Nest | None:
    """The outputs of a scan, if the kernel has one: for a block of columns, or for a few rows."""
    scan = _scan_of(kernel)
    if scan is None:
        return None
    axis, parent, column = scan.updates[0].axis, kernel.parent, kernel.contiguous
    others = [loop for loop in parent.loops if loop.axis != axis]
    if not others:
        return Nest(tuple(step for stage in kernel.outputs for step in _vectors(kernel, stage, axis).steps))
    of_columns = len(scan.updates) == 1 and column != axis and has(parent, column)
    if of_columns:
        block, along = _columns(kernel, scan, axis, loop_along(parent, column)), column
    else:
        block, along = _rows(kernel, scan, others[0]), others[0].axis
    rest = [loop.name for loop in others if loop.axis != along]
    inside, outside = f"{along}_i", f"{along}_b"
    tasks = _tasks(kernel, rest, along, outside, -(-loop_along(parent, along).extent // block))
    steps: list[Step] = []
    for stage in kernel.outputs:
        steps.append(Split(stage.name, along, outside, inside, block))
        vector, each = _vectors(kernel, stage, axis), inside
        if of_columns:
            vector, each = vectors(stage.name, inside, block, kernel.lanes(stage.bits)), axis
        cut = tasks.cut(stage.name, (outside, *rest))
        steps += [*vector.steps, *cut.steps, Reorder(stage.name, (*vector.loops, each, *cut.loops))]
        steps += tasks.shared(stage.name)
    level = Level(parent.name, tasks.inner if tasks.axis == outside else outside)
    steps += [ComputeWith(stage.name, level.parent, level.var) for stage in kernel.outputs if stage is not parent]
    return Nest(tuple(steps), level, room={along: block})


def _tasks(kernel: CpuKernel, rest: list[str], along: str, blocks: str, count: int) -> Tasks:
    """What threads share: the outermost of the other loops, if there is one, or `count` blocks along axis `along`."""
    if not kernel.parallel:
        return Tasks()
    if rest or kernel.is_uncounted(along):
        return Tasks(rest[-1] if rest else blocks)  # Several steps in a task would have a guard.
    return Tasks(blocks, kernel.grain(count, kernel.work // count))


def scan(kernel: CpuKernel, stage: Stage, nest: Nest) -> list[Step]:
    """Steps of a scan, with those of its operands and chunks, at the level of `nest`, or before everything else."""
    if stage is not _scan_of(kernel):
        return []
    if any(not has(stage, loop.axis) for loop in kernel.parent.loops):
        nest = Nest(())  # What is alike for several rows is scanned once, before all else.
    level, last = nest.level, stage.updates[-1]
    rest = [loop.name for loop in stage.loops if loop.axis != stage.updates[0].axis]
    steps: list[Step] = [ComputeAt(stage.name, level.parent, level.var) if level else ComputeRoot(stage.name)]
    along, block = next(iter(nest.room.items()), ("", 1))
    if len(stage.updates) > 1:
        return [*steps, *_in_chunks(kernel, stage, along if block > 1 else "", block), *_operand(kernel, stage, nest)]
    if along:
        vector = vectors(stage.name, along, block, kernel.lanes(32), update=0)
        order = (*vector.loops, last.name, *(name for name in rest if name != along))
        steps += [*vector.steps, Reorder(stage.name, order, update=0)]
        if stage.loops[0].axis != along:
            # The lanes of a vector lie side by side.
            others = (loop.name for loop in stage.loops if loop.axis != along)
            steps.append(ReorderStorage(stage.name, (along, *others)))
    return steps


def _scan_of(kernel: CpuKernel) -> Stage | None:
    """The Func that holds the results of a scan, if there is one; its chunks are scanned, too."""
    scans = [stage for stage in kernel.graph.stages if stage.role is Role.SCAN]
    return scans[-1] if scans and kernel.outputs else None


def _in_chunks(kernel: CpuKernel, stage: Stage, rows: str, block: int) -> list[Step]:
    """Steps of a scan along memory, of which a chunk is a step, of `block` rows along axis `rows`, "" for one."""
    element, step = stage.updates
    rest = [loop.name for loop in stage.loops if loop.axis not in (element.axis, rows)]
    steps: list[Step] = [Unroll(stage.name, element.name, update=0)]
    order = [element.name, step.name, *rest]
    if rows:
        inside, outside = f"{rows}_v", f"{rows}_o"
        steps += [Split(stage.name, rows, outside, inside, block, update=0), Unroll(stage.name, inside, update=0)]
        order = [element.name, inside, step.name, outside, *rest]
    steps.append(Reorder(stage.name, tuple(order), update=0))
    if step.fixed and step.extent <= _FEW_CHUNKS and block <= _FEW_ROWS:
        steps.append(Unroll(stage.name, step.name, update=0))
    for chunk in _chunks(kernel, stage):
        steps += [ComputeAt(chunk.name, stage.name, step.name), Vectorize(chunk.name, chunk.loops[0].name)]
        steps += [Unroll(chunk.name, rows)] if rows else []
    return steps


def _chunks(kernel: CpuKernel, stage: Stage) -> list[Stage]:
    """The Funcs of a chunk that a scan along memory combines, the last one first."""
    found: list[Stage] = []
    while (called := kernel.graph[(found[-1] if found else stage).calls[0]]).role is Role.SCAN:
        found.append(called)
    return found


def _operand(kernel: CpuKernel, stage: Stage, nest: Nest) -> list[Step]:
    """Steps that compute what is scanned along memory in vectors before, if anything is computed."""
    operand = kernel.graph[_chunks(kernel, stage)[-1].calls[0]]
    if kernel.inlined_work(operand) <= COPY_WORK:
        return []
    at = nest.level
    vector = _vectors(kernel, operand, stage.updates[0].axis)
    return [ComputeAt(operand.name, at.parent, at.var) if at else ComputeRoot(operand.name), *vector.steps]


def _vectors(kernel: CpuKernel, stage: Stage, axis: str) -> Cut:
    """The loop of `stage` along `axis` in vectors."""
    return vectors(stage.name, axis, loop_along(stage, axis).extent, kernel.lanes(stage.bits))


def _columns(kernel: CpuKernel, stage: Stage, axis: str, along: Loop) -> int:
    """Columns of a block of which half of the second-level cache holds what is scanned."""
    rows, least = loop_along(stage, axis).extent, int(COLUMNS.values[0])
    most = kernel.device.l2_bytes // 2 // max(1, rows * stage.bits // 8 * stage.values)
    whole = 1 << max(along.extent - 1, 0).bit_length()
    fitting = [int(count) for count in COLUMNS.values if int(count) <= min(most, whole)]
    return kernel.choices.number(COLUMNS, max(fitting, default=least), f"half of L2 holds {rows} rows of them")


def _rows(kernel: CpuKernel, stage: Stage, along: Loop) -> int:
    """Rows that are scanned side by side."""
    lanes = kernel.lanes(32)
    if len(stage.updates) == 1:
        fitting = [int(count) for count in ROWS.values if int(count) <= min(lanes, along.extent)]
        return kernel.choices.number(ROWS, max(fitting, default=1), "as many as a vector has lanes")
    whole = [count for count in (2, 4) if along.fixed and along.extent % count == 0]
    return kernel.choices.number(ROWS, max(whole, default=1), "registers hold chunks of so many")
