"""A reduction across memory: an accumulator for each column, rows one after another.

Where the reductions of a kernel come before its outputs, threads share the rows: each reads its part of memory from one
end to the other, in the order for which caches fetch ahead, and the parts are combined.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from halide_backend.schedule.cpu.kernel import MOST_COMPUTED, CpuKernel, Cut, Level, vectors
from halide_backend.schedule.cpu.turned_operands import turned_operands
from halide_backend.schedule.cpu.vector_reductions import ROUNDS, RUNNING_TERMS
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import (
    AlignStorage,
    BoundExtent,
    BoundStorage,
    ComputeAt,
    ComputeRoot,
    Fuse,
    NeverPartition,
    Parallel,
    Reorder,
    ReorderStorage,
    RFactor,
    Split,
    Step,
    Unroll,
)

PARTS = Knob(
    "column_reductions.parts",
    (4, 8, 16, 32, 64),
    "parts of the rows that threads share, each with accumulators of its own",
)

#: The Var that RFactor adds to those of the Func before, by the end of a Func's name.
_ADDED = {"parts": "part", "blocks": "block", "chunks": "chunk", "chains": "chain"}

REGISTERS = Knob(
    "column_reductions.registers", (1, 2, 4, 5, 6, 7, 8), "vectors of columns whose accumulators stay in registers"
)

#: Vectors of columns whose accumulators stay in registers: as many additions as run at a time, of 4 cycles each.
HELD = 4

CHAINS = Knob(
    "column_reductions.chains", (1, 2, 4, 8), "rows that few columns add to accumulators of their own at the same time"
)

#: Operators whose terms may be taken in any order.
_COMMUTATIVE = ROUNDS | {"max", "min"}

#: Parts of the rows: as many as threads of most machines, and more work in each than in adding up all of them.
_PARTS = 16


def reduce_columns(
    kernel: CpuKernel, stage: Stage, level: Level | None, beside: Loop | None = None, room: int = 0, at_a_time: int = 1
) -> list[Step]:
    """Steps that compute reduction `stage` at `level`, None for before everything else, in vectors of columns; those of
    all steps of the loop `beside` lie side by side in memory, and are one loop. `room` is the number of columns that
    the level computes at a time, if that is known whatever the sizes are, `at_a_time` the rows of a step of the loop
    over rows."""
    steps: list[Step] = [ComputeAt(stage.name, level.parent, level.var) if level else ComputeRoot(stage.name)]
    column = next((loop for loop in stage.loops if loop.axis == kernel.contiguous), stage.loops[0])
    outer = tuple(loop.name for loop in stage.loops if loop is not column and loop is not beside)
    dimensions = (column.name, *([beside.name] if beside else []), *outer)
    rows = longest(stage.updates)
    serial: dict[str, tuple[str, ...]] = {}
    size = _rows_of_a_part(kernel, stage, at_a_time) if level is None else rows.extent
    if size < rows.extent:
        func, part, updates = f"{stage.name}_parts", f"{rows.name}_p", _cut(stage.updates, f"{rows.name}_q", size)
        steps += [
            Split(stage.name, rows.name, part, f"{rows.name}_q", size, update=0),
            RFactor(stage.name, part, "part", func),
            ComputeRoot(func),
            Parallel(func, "part", update=0),
        ]
        serial[stage.name] = (part, *outer)
        # Halide puts the loop over parts, whose variable is pure, inside of those over rows.
        outer += ("part",)
    else:
        func, updates = stage.name, stage.updates
    cascade, loops_of = _cascade(func, stage.operators, updates)
    steps += cascade
    lanes = kernel.lanes(stage.bits)
    width = column.extent * (beside.extent if beside else 1)
    if not column.fixed:
        width = max(width, lanes)  # There may be more columns than a hint says, and masked they take as long.
    wide = width >= lanes // 2
    along = f"{column.name}_{beside.name}" if beside else column.name
    if wide and column.fixed and not beside and not (room and column.axis == kernel.graph.narrow):
        added, loops_of = _chains(kernel, stage, level, -(-min(width, room or width) // lanes), updates, loops_of)
        steps += added
    reading = next(reversed(loops_of))
    serial |= {name: (*loops, *outer) for name, loops in loops_of.items()}
    operands = kernel.transposition
    tiles = wide and operands is not None and operands.reduced == "columns" and _reads_tiles(kernel, stage)

    def held_of(name: str, update: int | None) -> int:
        if update is None or not (name == reading or (tiles and name == func)):
            return 1
        return _held(kernel, stage, -(-min(width, room or width) // lanes))

    for name, around in serial.items():
        whole = bool(room) and column.axis == kernel.graph.narrow
        if whole:
            steps.append(BoundExtent(name, column.name, room))
        elif room and not column.fixed:
            # Without a fixed size, accumulators would be allocated for each block of columns.
            steps.append(BoundStorage(name, column.name, room))
        if name != stage.name:
            dimensions += (_ADDED[name.rpartition("_")[2]],)
            if whole:
                # One chunk of one block, which Halide does not see of a computed number of them.
                steps += [BoundExtent(name, var, 1) for var in dimensions if var in ("chunk", "block")]
        if beside:
            steps.append(ReorderStorage(name, dimensions))
            steps += [Fuse(name, column.name, beside.name, along, update) for update in (None, 0)]
        elif wide and (width % lanes or not column.fixed):
            # Whole vectors of accumulators: what masked stores write stays in memory (build/llvm/partial_vectors.py).
            steps.append(AlignStorage(name, column.name, lanes))
        for update in (None, 0):
            vector = vectors(name, along, width, lanes, update) if wide else Cut((), (along,))
            steps += vector.steps
            held = held_of(name, update)
            if whole and held == 1:
                # Each accumulator has a place of its own, which may be a register.
                steps.append(Unroll(name, vector.loops[1], update))
            chained = name.endswith("_chains")
            if chained:
                steps.append(Unroll(name, "chain", update))
            if update is None:
                continue
            if f"{name}_chains" in serial:
                steps.append(Unroll(name, around[0], update))
            # An operand that lies across is read for as many of its lines as there are columns: all rows of a part of
            # these first, which adjoin in each line.
            turned = tiles and name == reading
            if held > 1 or turned:
                (inner, several), rows_read = vector.loops, loops_of[name]
                together = f"{along}_u"
                if held > 1:
                    steps += [Split(name, several, several, together, held, update), Unroll(name, together, update)]
                order = (inner, *([together] if held > 1 else []), *rows_read, several, *around[len(rows_read) :])
            else:
                order = (*vector.loops, *around)
            if chained:
                order = (order[0], "chain", *order[1:])
            steps.append(Reorder(name, order, update))
            if beside and wide and not rows.fixed:
                # Which vectors of the last step have all rows Halide finds out for the outermost loop, and forgets the
                # one over steps, where each vector was behind a guard: 247 us instead of 70.
                steps.append(NeverPartition(name, vector.loops[1], update))
            if turned and kernel.transposition is not None:
                steps += turned_operands(kernel, kernel.transposition, Level(name, several))
    return steps


def _reads_tiles(kernel: CpuKernel, stage: Stage) -> bool:
    """Whether reduction `stage` reads operands that are turned in tiles."""
    return any(each.role is Role.STAGED_LOAD for each in kernel.behind([stage]))


def _held(kernel: CpuKernel, stage: Stage, available: int) -> int:
    """Vectors of columns whose accumulators stay in registers while all rows are read, of those that are available."""
    why = "as many additions as run at a time; in the cache, an accumulator would be loaded and stored for each element"
    held = next((count for count in range(HELD, 2 * HELD) if available % count == 0), HELD)
    return max(1, min(available, kernel.choices.number(REGISTERS, held, why, at=stage.name)))


def has_parts(kernel: CpuKernel, stage: Stage, at_a_time: int = 1) -> bool:
    """Whether there are enough rows in reduction `stage`, `at_a_time` in a step, to be split into parts for threads."""
    return (
        kernel.parallel
        and longest(stage.updates).extent >= _PARTS
        and math.prod(loop.extent for loop in stage.updates) * at_a_time >= _PARTS * RUNNING_TERMS
        and kernel.work >= _PARTS * kernel.task_work
    )


def _rows_of_a_part(kernel: CpuKernel, stage: Stage, at_a_time: int) -> int:
    """Rows that share accumulators: those of a part, or all of them if threads do not share the rows."""
    rows = longest(stage.updates)
    if not has_parts(kernel, stage, at_a_time):
        return rows.extent
    why = "parts for as many threads, and little to add up"
    size = -(-rows.extent // kernel.choices.number(PARTS, _PARTS, why, at=stage.name))
    if _reads_tiles(kernel, stage):
        size = RUNNING_TERMS * -(-size // RUNNING_TERMS)
    return size if rows.fixed else min(size, MOST_COMPUTED)


def _cut(loops: tuple[Loop, ...], name: str, size: int) -> tuple[Loop, ...]:
    """`loops`, of whose longest there are `size` steps, as loop `name`."""
    most = longest(loops)
    return tuple(Loop(name, size, loop.axis) if loop is most else loop for loop in loops)


def _cascade(
    func: str, operators: Sequence[str], updates: Sequence[Loop]
) -> tuple[list[Step], dict[str, tuple[str, ...]]]:
    """Add up long columns in chunks of rows, and many chunks in blocks: a further accumulator for what one would
    round away. Returns the Funcs that result and the loops over rows of each one's update, innermost first."""
    names = tuple(loop.name for loop in updates)
    rows = longest(updates)
    others = math.prod(loop.extent for loop in updates if loop is not rows)
    if ROUNDS.isdisjoint(operators) or rows.extent * others < 2 * RUNNING_TERMS:
        return [], {func: names}
    total, blocks, chunks = func, f"{func}_blocks", f"{func}_chunks"
    chunk, inner = f"{rows.name}_c", f"{rows.name}_i"
    size = max(1, RUNNING_TERMS // others)
    serial: dict[str, tuple[str, ...]] = {}
    steps: list[Step] = [Split(total, rows.name, chunk, inner, size, update=0)]
    count = -(-rows.extent // size)
    if count >= 2 * RUNNING_TERMS:
        block, member = f"{rows.name}_b", f"{rows.name}_m"
        steps += [
            Split(total, chunk, block, member, math.isqrt(count), update=0),
            RFactor(total, block, "block", blocks),
            ComputeAt(blocks, total, block),
        ]
        serial[total] = (block,)
        total, chunk = blocks, member
    steps += [RFactor(total, chunk, "chunk", chunks), ComputeAt(chunks, total, chunk)]
    return steps, serial | {total: (chunk,), chunks: tuple(inner if name == rows.name else name for name in names)}


def _chains(
    kernel: CpuKernel,
    stage: Stage,
    level: Level | None,
    columns: int,
    updates: Sequence[Loop],
    loops_of: dict[str, tuple[str, ...]],
) -> tuple[list[Step], dict[str, tuple[str, ...]]]:
    """Add several rows to accumulators of their own, where there are fewer vectors of `columns` than additions that run
    at a time: each would wait for the one before it. Returns as `_cascade`, whose `loops_of` are given."""
    *sums, reading = loops_of
    place = Level(sums[-1], loops_of[sums[-1]][0]) if sums else level
    names = loops_of[reading]
    rows = longest(updates)
    row = names[updates.index(rows)]
    others = math.prod(loop.extent for loop in updates if loop is not rows)
    running = max(1, RUNNING_TERMS // others) if sums else rows.extent
    whole = rows.fixed and place is not None and (bool(sums) or reading == stage.name)
    if not (whole and _COMMUTATIVE.issuperset(stage.operators)) or columns * len(stage.operators) >= HELD:
        return [], loops_of
    most = HELD // (columns * len(stage.operators))
    count = next((each for each in (4, 2) if each <= most and running % each == 0 and running > each), 1)
    why = f"{columns} vectors of columns: an addition would wait for that of the row before"
    if (count := kernel.choices.number(CHAINS, count, why, at=stage.name)) == 1:
        return [], loops_of
    chains, step, rest = f"{reading}_chains", f"{row}_u", f"{row}_h"
    assert place is not None
    steps: list[Step] = [
        Split(reading, row, rest, step, count, update=0),
        RFactor(reading, step, "chain", chains),
        ComputeAt(chains, place.parent, place.var),
    ]
    serial = tuple(rest if name == row else name for name in names)
    return steps, {**loops_of, reading: (step,), chains: serial}


def longest(loops: Sequence[Loop]) -> Loop:
    """The longest loop, of several the outermost one: the parts of it are apart in memory."""
    return max(reversed(loops), key=lambda loop: loop.extent)
