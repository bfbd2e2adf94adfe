"""Blocks of columns in parallel, each a few vectors wide: pointwise kernels, sums over the first dimension.

Memory runs along an outer axis; reductions run over the others with the accumulators of one block in cache.
"""

from __future__ import annotations

import math

from halide_backend.schedule.cpu.accumulators import HELD, has_parts
from halide_backend.schedule.cpu.kernel import (
    MOST_COMPUTED,
    PARALLEL_WORK,
    SHORT_ROW_VECTORS,
    CpuKernel,
    Cut,
    Level,
    Nest,
    Tasks,
    has,
    loop_along,
    same_loops,
    vectors,
)
from halide_backend.schedule.cpu.lines import columns_of_lines, lines_beside, picked, vectors_of_lines
from halide_backend.schedule.cpu.narrow_columns import rows_side_by_side
from halide_backend.schedule.cpu.stored import is_kept
from halide_backend.schedule.cpu.tails import tail_of
from halide_backend.schedule.cpu.turned_operands import (
    is_turned_result,
    turned_in_blocks,
    turned_operands,
    turned_result,
)
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import ComputeWith, NeverPartition, Reorder, Split, Step, Unroll, Vectorize

COLUMNS = Knob(
    "column_blocks.columns",
    (16, 32, 48, 64, 80, 96, 112, 128, 256, 512, 1024, 2048),
    "columns of a block with accumulators",
)
UNROLL = Knob(
    "column_blocks.unroll", (1, 2, 4), "vectors of a block that are computed together where nothing is reduced"
)
ROWS = Knob("column_blocks.rows", (1, 2, 4, 8), "rows that are computed together where nothing is reduced")

#: Vectors that are computed without a loop, and their operations: as many as an instruction cache holds easily. Twice
#: as many are copied from rows that lie apart.
_FEW, _FEW_WORK = 16, 256

#: Vectors of all results together, beyond which a loop that stores one of each result at a time is faster ("gradients
#: of four norms of a sum" in benchmarks/kinds_of_kernels.py).
_FEW_RESULTS = 20

#: Rows that are computed together where they read the same rows, or where each, of less than a vector that is looked
#: up, takes few instructions beside those of a loop; and loads that a row has in common with the next one, at least.
_TOGETHER, _COMMON = 4, 2

#: Most steps of a loop over the taps of a filter.
_TAPS = 7

#: How often L1 may hold what is turned and stored for a block of columns: of a norm's gradient and its residuals, 128
#: rows of 112 columns in seven Funcs took twice as long as those of 16 ("residuals and a norm's gradient" in
#: benchmarks/kinds_of_kernels.py).
_KEPT = 3

#: The part of a row that the last of its blocks may compute once more.
_REPEATED = 1 / 8

#: Blocks with accumulators that there are at least, for threads to share: narrow ones read a line or two of each row.
_BLOCKS = 8


def column_blocks(kernel: CpuKernel) -> Nest | None:
    """The outputs in blocks of columns, if the contiguous axis is an outer one or there is no inner axis."""
    parent, outer = kernel.parent, kernel.outer
    inner_axes = {loop.axis for stage in kernel.outputs for loop in stage.loops} - set(outer)
    if kernel.contiguous not in outer and (inner_axes or kernel.reduces):
        return None
    column = kernel.contiguous if kernel.contiguous in outer else outer[-1]
    others = [axis for axis in outer if axis != column]
    # A few elements lie inside of all else: their rows, as many as elements, are computed together.
    inside = parent.loops[0].axis if kernel.across else picked(kernel, column, others)
    beside = [] if inside else lines_beside(kernel, column, others)
    others.sort(key=lambda axis: axis == inside or axis in beside)
    lanes = _lanes(kernel, loop_along(parent, column))
    along = loop_along(parent, column)
    # Masked accumulators that lie in a block of known size become registers (build/llvm/partial_vectors.py).
    narrow = kernel.reduces and not along.fixed and along.extent < HELD * lanes
    streamed = not narrow and _streamed(kernel, others)
    block = lanes * -(-along.extent // lanes) if narrow else _block(kernel, column, others, lanes, streamed)
    if beside:
        block = min(block, columns_of_lines(kernel, beside, lanes))
    within = [loop for loop in parent.loops if loop.axis not in outer]
    tasks = (
        _tasks_of_rows(kernel, column, within)
        if streamed
        else _tasks(kernel, column, others, beside or [inside] * bool(inside))
    )
    steps: list[Step] = []
    rows = [axis for axis in others[-1:] if axis != tasks.axis]
    # Outputs with other loops than each other's could not be computed together.
    few = [_few(kernel, stage, loop_along(stage, column), block, lanes, rows) for stage in kernel.outputs]
    few_vectors, few_rows = map(min, zip(*few))
    few_vectors = max(few_vectors, vectors_of_lines(kernel, along, block, lanes))
    few_rows = max(few_rows, _rows_in_common(kernel, along, others[-1:], lanes))
    turned = [stage for stage in kernel.outputs if is_turned_result(kernel, stage)]
    for stage in kernel.outputs:
        if stage in turned:
            steps += turned_result(kernel, stage, block, [f"{column}_b", *reversed(others)], tasks)
            continue
        inner = [loop.name for loop in stage.loops if loop.axis not in outer]
        in_block = _blocks(kernel, stage, loop_along(stage, column), block, lanes)
        # Rows one after another as they lie in memory, or all rows of a block while its accumulators are in the cache.
        order = [f"{column}_b", *inner] if streamed else [*inner, f"{column}_b"]
        outside = [axis for axis in reversed(others) if axis not in beside]
        cut = tasks.cut(stage.name, [*reversed(beside), *order, *outside])
        unrolled = _unrolled(kernel, stage, f"{column}_i_o", f"{column}_i_u", few_vectors)
        together = _rows_together(kernel, stage, others[-1] if others else "", tasks, few_rows, inside)
        in_row, in_rows = (next((s.factor for s in cut if isinstance(s, Split)), 1) for cut in (unrolled, together))
        within_vectors = [step.var for step in (*unrolled, *together) if isinstance(step, Unroll)]
        steps += [
            *in_block.steps,
            *unrolled,
            *cut.steps,
            *together,
            Reorder(stage.name, (in_block.loops[0], *within_vectors, *in_block.loops[1:], *cut.loops)),
        ]
        if column == kernel.graph.narrow:
            # Each accumulator is read from a place of its own, which may be a register.
            steps.append(Unroll(stage.name, in_block.loops[1]))
        steps += [NeverPartition(stage.name, name) for name in _taps(kernel, stage, [*inner, *others], tasks)]
        if tasks.outer in cut.loops:
            steps += tasks.shared(stage.name)
    if streamed:
        return Nest(tuple(steps))
    shifted = any(isinstance(step, Split) and step.tail == "ShiftInwards" for step in steps)
    # What is needed for a block that begins earlier is a whole block: its storage has a fixed size without more.
    var, room = f"{column}_b", {} if shifted else {column: block}
    if not kernel.reduces and all(same_loops(stage, parent) for stage in kernel.outputs):
        var = f"{column}_i_o"
        room = {axis: in_rows if [axis] == others[-1:] else 1 for axis in others} | {column: lanes * in_row}
    steps += [ComputeWith(stage.name, parent.name, var) for stage in kernel.outputs if stage is not parent]
    if kernel.transposition is not None and turned_in_blocks(kernel):
        steps += turned_operands(kernel, kernel.transposition, Level(parent.name, var), skip=turned)
    around = tuple((axis, Level(parent.name, tasks.inner if axis == tasks.axis else axis)) for axis in others)
    single = kernel.single(tasks, others) if kernel.reduces else ()
    return Nest(tuple(steps), Level(parent.name, var), around, tasks.axis, room=room, single=single)


def _blocks(kernel: CpuKernel, stage: Stage, along: Loop, block: int, lanes: int) -> Cut:
    """Cut the loop `along` of `stage` into blocks, and these into vectors of `lanes`.

    The last of several blocks has fewer vectors. Cut first, they have an end there, of which Halide makes the end of a
    loop; otherwise those that are missing are masked: where no memory is behind a buffer, each such store is handled by
    microcode, in about 100 ns on a Zen 5. What is stored for one vector would be of unknown size, though.
    """
    name, tail = along.name, tail_of(kernel, stage, along.axis, block)
    whole = block <= lanes or (along.fixed and (along.extent % block == 0 or along.extent <= block))
    stores = any(is_kept(kernel, each) for each in kernel.behind(kernel.outputs))
    if whole or stores or kernel.transposition is not None or tail != Split.tail:
        vector = vectors(stage.name, f"{name}_i", block, lanes)
        return Cut((Split(stage.name, name, f"{name}_b", f"{name}_i", block, tail=tail), *vector.steps), vector.loops)
    outer, inner, lane = f"{name}_b", f"{name}_i_o", f"{name}_i_v"
    steps = (
        Split(stage.name, name, f"{name}_o", lane, lanes),
        Split(stage.name, f"{name}_o", outer, inner, block // lanes),
        Vectorize(stage.name, lane),
    )
    return Cut(steps, (lane, inner))


def _lanes(kernel: CpuKernel, along: Loop) -> int:
    """Elements of a vector: a register of them, or all of a shorter row that is a smaller one, without a mask."""
    lanes = kernel.lanes(kernel.parent.bits)
    whole = along.fixed and 1 < along.extent < lanes and along.extent.bit_count() == 1 and not kernel.reduces
    return along.extent if whole else lanes


def _taps(kernel: CpuKernel, stage: Stage, names: list[str], tasks: Tasks) -> list[str]:
    """The loops of a few steps whose cases Halide would tell apart, as those of a filter: it does so for one loop, the
    outermost with a case, and most steps of these have one. What is left for it are rows."""
    if not any(each.cases for each in (stage, *kernel.behind([stage]))):
        return []
    few = (loop for loop in stage.loops if loop.name in names and loop.fixed and 1 < loop.extent <= _TAPS)
    return [loop.name for loop in few if loop.axis != tasks.axis]


def _streamed(kernel: CpuKernel, others: list[str]) -> bool:
    """Whether threads share the rows of all reductions, which read memory from one end to the other then.

    What several of them use would have to be stored whole.
    """
    stages = [stage for stage in kernel.graph.stages if is_kept(kernel, stage)]
    points = math.prod(loop_along(kernel.parent, axis).extent for axis in others)
    return (
        kernel.reduces
        and not turned_in_blocks(kernel)
        and points == 1
        and all(stage.role is Role.REDUCTION and has_parts(kernel, stage) for stage in stages)
    )


def _few(kernel: CpuKernel, stage: Stage, column: Loop, block: int, lanes: int, rows: list[str]) -> tuple[int, int]:
    """How many vectors of a row and rows, along the first axis of `rows`, are computed without a loop: all if they are
    few. What rows share is then computed before them, and each load of a copy has a stride of its own, by which
    processors fetch ahead."""
    vectors, most = block // lanes, min(_FEW, max(1, _FEW_WORK // max(1, kernel.inlined_work(stage))))
    results = sum(each.values for each in kernel.outputs)
    # Of a row that is one block the last vector has a constant mask. Loads with strides or cases would have branches.
    lines = not any(each.cases or each.across.get(column.axis) for each in (stage, *kernel.behind([stage])))
    whole = column.extent % block == 0 or (column.extent <= block and lines)
    if not (column.fixed and whole) or vectors > min(most, max(1, _FEW_RESULTS // results)):
        return 1, 1
    row = next((loop for loop in stage.loops if loop.axis in rows and loop.fixed), None)
    if row is None:
        return vectors, 1
    loads = [each for each in (stage, *kernel.behind([stage])) if each.traffic]
    apart = bool(loads) and all(row.axis in each.strided and (column.axis, row.axis) not in each.runs for each in loads)
    if kernel.copies and apart:
        most *= 2
    return vectors, row.extent if vectors * row.extent <= most else 1


def _rows_in_common(kernel: CpuKernel, along: Loop, rows: list[str], lanes: int) -> int:
    """How many of many rows are computed together, a vector of each: more than one if they share loads, or have little
    to do each."""
    work = max(kernel.inlined_work(stage) for stage in kernel.outputs)
    axis = "".join(rows)
    common = max((each.overlaps.get(axis, 0) for each in kernel.graph.stages), default=0)
    looked_up = along.extent < lanes and any(along.axis in each.gathered for each in kernel.graph.stages)
    fixed = bool(rows) and loop_along(kernel.parent, axis).fixed
    most = 1 << max(1, 2 * _FEW_WORK // max(1, work)).bit_length() - 1
    return min(_TOGETHER, most) if looked_up or (common >= _COMMON and fixed) else 1


def _unrolled(kernel: CpuKernel, stage: Stage, vectors_of: str, name: str, whole: int) -> list[Step]:
    """Steps that compute several of the vectors along `vectors_of` together, as loop `name`."""
    if kernel.reduces:
        return []
    why = "all of a short row, or what fills lines of memory; otherwise the loop costs little"
    count = kernel.choices.number(UNROLL, whole, why)
    if count == 1:
        return []
    return [Split(stage.name, vectors_of, vectors_of, name, count), Unroll(stage.name, name)]


def _rows_together(kernel: CpuKernel, stage: Stage, axis: str, tasks: Tasks, whole: int, inside: str) -> list[Step]:
    """Steps that compute several rows along `axis` together, so that they share what they load."""
    if kernel.reduces or not axis:
        return []
    if axis == inside:
        whole = loop_along(stage, axis).extent
    why = "all of a few short ones, some that share loads or are looked up; others share nothing"
    count = kernel.choices.number(ROWS, whole, why)
    if count == 1:
        return []
    name = tasks.inner if axis == tasks.axis else axis
    return [Split(stage.name, name, name, f"{axis}_u", count), Unroll(stage.name, f"{axis}_u")]


def _tasks_of_rows(kernel: CpuKernel, column: str, within: list[Loop]) -> Tasks:
    """The outermost loop over rows; of a single row, that over its blocks if it is long."""
    if not within:
        return Tasks(f"{column}_b" if kernel.parent.points >= PARALLEL_WORK else "")
    rows = within[-1]
    return Tasks(rows.name, kernel.grain(rows.extent, kernel.work // rows.extent))


def _tasks(kernel: CpuKernel, column: str, others: list[str], inside: list[str]) -> Tasks:
    """A loop around the blocks that threads share, or that over the blocks."""
    if not kernel.parallel:
        return Tasks()
    shared = _shared_axis(kernel, others, inside)
    if not shared:
        return Tasks(f"{column}_b")
    extent = loop_along(kernel.parent, shared).extent
    if kernel.reduces and kernel.is_uncounted(shared):
        return Tasks(shared)  # Several steps in a task would have a guard.
    return Tasks(shared, kernel.grain(extent, kernel.work // extent))


def _shared_axis(kernel: CpuKernel, others: list[str], inside: list[str]) -> str:
    """The outermost axis around the blocks that is long enough for threads to share, "" if there is none."""
    return next((axis for axis in others if axis not in inside and loop_along(kernel.parent, axis).extent >= 4), "")


def _block(kernel: CpuKernel, column: str, others: list[str], lanes: int, streamed: bool) -> int:
    """Columns of one block: small enough to share out, large enough to be worth a task."""
    along = loop_along(kernel.parent, column)
    extent = along.extent
    if along.fixed and not kernel.reduces and tail_of(kernel, kernel.parent, column, lanes) != Split.tail:
        return lanes
    points = math.prod(loop_along(kernel.parent, axis).extent for axis in others)
    if kernel.short_rows:
        # Lines of a cache that several vectors and stages read.
        return min(SHORT_ROW_VECTORS * lanes, lanes * (-(-extent // lanes)))
    shared_elsewhere = not kernel.parallel or points >= 16
    if shared_elsewhere and not (along.fixed or kernel.reduces):
        # Every vector of the last block has a guard, and a row may be no longer than that. Of a row that is shorter,
        # each lane that is missing would be a branch where loads or stores have a stride.
        return min(lanes, 1 << max(extent - 1, 0).bit_length())
    if shared_elsewhere or (streamed and kernel.parent.points > extent):
        wanted = extent
    else:
        each = max(1, kernel.work // (extent * points))
        wanted = max(kernel.task_work // each, extent // 64)
    if kernel.reduces and not streamed:
        alone = kernel.parallel and not _shared_axis(kernel, others, [])
        least = 1 if alone and not _side_by_side(kernel) else _held(kernel, along, lanes) * lanes
        most_kept = _most_kept(kernel, column, lanes)
        wanted = _block_with_accumulators(kernel, column, wanted, least, most_kept)
        wanted = _even(kernel, along, wanted, max(least, HELD * lanes))
    most = extent if along.fixed else min(extent, MOST_COMPUTED)
    return _whole_tiles(kernel, along, max(lanes, -(-min(wanted, most) // lanes) * lanes))


def _whole_tiles(kernel: CpuKernel, along: Loop, block: int) -> int:
    """Columns of a block of at most `block`, or of all: tiles of an axis that is whole tiles are read without a guard,
    so that no block may go beyond its end."""
    turned = kernel.transposition
    if turned is None or not turned_in_blocks(kernel) or not along.fixed or along.extent % turned.side:
        return block
    fitting = (count for count in range(block, 0, -1) if along.extent % count == 0 and count % turned.side == 0)
    return next(fitting, along.extent)


def _side_by_side(kernel: CpuKernel) -> bool:
    """Whether a reduction has the columns of several rows side by side, which a block with some of them would part."""
    inside = [kernel.graph[name] for name in kernel.inside]
    return any(each.role is Role.REDUCTION and rows_side_by_side(kernel, each) > 1 for each in inside)


def _held(kernel: CpuKernel, along: Loop, lanes: int) -> int:
    """Vectors of a block whose accumulators registers hold: all of a short row, which is then read from one end to the
    other, or one less where that saves a good part of it."""
    row = -(-along.extent // lanes)
    if along.fixed and HELD < row < 2 * HELD and kernel.transposition is None:
        return row
    less, more = (-(-row // count) * count for count in (HELD - 1, HELD))
    return HELD - 1 if along.fixed and kernel.transposition is None and 4 * less <= 3 * more else HELD


def _most_kept(kernel: CpuKernel, column: str, lanes: int) -> int:
    """Columns of a block of which the caches hold what is turned or stored for it, vectors of `lanes`."""
    stages = kernel.graph.stages
    if not turned_in_blocks(kernel):
        return loop_along(kernel.parent, column).extent
    kept = [stage for stage in stages if stage.role is Role.SHARED and is_kept(kernel, stage)]
    kept += [kernel.graph[stage.calls[0]] for stage in stages if stage.role is Role.STAGED_LOAD]
    rows = (
        math.prod(loop.extent for loop in stage.loops if loop.axis not in kernel.outer) * stage.bits // 8
        for stage in kept
        if stage.role is not Role.STAGED_LOAD and has(stage, column)
    )
    return max(lanes, _KEPT * kernel.device.l1_bytes // max(1, sum(rows)) // lanes * lanes)


def _block_with_accumulators(kernel: CpuKernel, column: str, wanted: int, least: int, most_kept: int) -> int:
    """Columns of a block in which reductions run down the columns: at least `least`, of which registers hold the
    accumulators, and no more where several passes over all rows of so many columns find them in the cache; `most_kept`
    of what else is stored for them."""
    reductions = [stage for stage in kernel.graph.stages if stage.role is Role.REDUCTION and has(stage, column)]
    rows = max((math.prod(loop.extent for loop in stage.updates) for stage in reductions), default=0)
    if least > 1 and 0 < rows * least * 4 <= kernel.device.l1_bytes // 2:
        why = f"as many accumulators as registers hold; {rows} rows of them are half of L1, or less"
        return kernel.choices.number(COLUMNS, least, why)
    most = kernel.device.l1_bytes // 32
    why = f"wide enough to read rows in runs, {most} float32 accumulators fill an eighth of L1"
    along = loop_along(kernel.parent, column)
    enough = max(wanted, along.extent // _BLOCKS, least)
    if not along.fixed and (shifting := _shifting(kernel, along, least, min(most, most_kept))):
        return kernel.choices.number(COLUMNS, shifting, "the last of three or more begins earlier, without guards")
    # What is turned has whole tiles in all blocks.
    fitting = [n for n in map(int, COLUMNS.values) if n <= most_kept and along.fixed and along.extent % n == 0]
    if most_kept < enough and fitting:
        return kernel.choices.number(COLUMNS, fitting[-1], f"{_KEPT} times L1 of what is turned and stored for them")
    return kernel.choices.number(COLUMNS, next((n for n in map(int, COLUMNS.values) if enough <= n <= most), most), why)


def _even(kernel: CpuKernel, along: Loop, block: int, held: int) -> int:
    """Columns of as many blocks as those of `block` columns, a multiple of `held`: the last one begins earlier, and
    would compute again what it is longer than the rest."""
    if not along.fixed or kernel.transposition is not None or block >= along.extent:
        return block
    even = -(-along.extent // -(-along.extent // block))
    return min(block, -(-even // held) * held)


def _shifting(kernel: CpuKernel, along: Loop, least: int, most: int) -> int:
    """Columns of a block of which there are three or more in a row of computed length, so that the last one may begin
    earlier (`tail_of`), the most for which that repeats little; 0 if there are none."""
    stage, extent = kernel.parent, along.extent
    if len(kernel.outputs) > 1 or kernel.transposition is not None or stage.overwrites or stage.replaces:
        return 0
    fitting = [n for n in map(int, COLUMNS.values) if n % least == 0 and 3 * n <= extent and n <= most]
    little = [n for n in fitting if -extent % n <= _REPEATED * extent]
    return max(little or fitting[:1], default=0)
