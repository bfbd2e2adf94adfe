"""A reduction across memory: an accumulator for each column, rows one after another.

Where the reductions of a kernel come before its outputs, threads share the rows: each reads its part of memory from one
end to the other, in the order for which caches fetch ahead, and the parts are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halide_backend.schedule.cpu.accumulators import HELD, Accumulation, Accumulators, longest
from halide_backend.schedule.cpu.kernel import CpuKernel, Cut, Level, vectors
from halide_backend.schedule.cpu.turned_operands import reads_tiles, turned_operands
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import (
    AlignStorage,
    BoundExtent,
    BoundStorage,
    Fuse,
    NeverPartition,
    Reorder,
    ReorderStorage,
    Split,
    Step,
    Unroll,
)

REGISTERS = Knob(
    "column_reductions.registers", (1, 2, 4, 5, 6, 7, 8), "vectors of columns whose accumulators stay in registers"
)


@dataclass(frozen=True)
class _Columns:
    """The columns of reduction `stage`; all steps of the loop `beside` are one loop with them, if there is one. `room`
    is the number of columns that are computed at a time, 0 if that is not known whatever the sizes are."""

    kernel: CpuKernel
    stage: Stage
    beside: Loop | None
    room: int

    @property
    def column(self) -> Loop:
        loops = self.stage.loops
        return next((loop for loop in loops if loop.axis == self.kernel.contiguous), loops[0])

    @property
    def outer(self) -> tuple[str, ...]:
        return tuple(loop.name for loop in self.stage.loops if loop is not self.column and loop is not self.beside)

    @property
    def along(self) -> str:
        """The loop that is cut into vectors."""
        return f"{self.column.name}_{self.beside.name}" if self.beside else self.column.name

    @property
    def lanes(self) -> int:
        return self.kernel.lanes(self.stage.bits)

    @property
    def width(self) -> int:
        width = self.column.extent * (self.beside.extent if self.beside else 1)
        # There may be more columns than a hint says, and masked they take as long.
        return width if self.column.fixed else max(width, self.lanes)

    @property
    def wide(self) -> bool:
        return self.width >= self.lanes // 2

    @property
    def vectors(self) -> int:
        """Vectors of columns that are computed at a time."""
        return -(-min(self.width, self.room or self.width) // self.lanes)

    @property
    def whole(self) -> bool:
        """Whether all columns are computed at a time: a second version for so many (`StageGraph.narrow`)."""
        return bool(self.room) and self.column.axis == self.kernel.graph.narrow

    @property
    def tiles(self) -> bool:
        """Whether operands are turned in tiles."""
        turned = self.kernel.transposition
        return self.wide and turned is not None and turned.reduced == "columns" and reads_tiles(self.kernel, self.stage)

    def storage(self, each: Accumulators) -> list[Step]:
        """Steps of the memory of accumulators."""
        steps: list[Step] = []
        column, name = self.column, each.func
        if self.whole:
            # One chunk of one block, which Halide does not see of a computed number of them.
            single = [var for var in each.added if var in ("chunk", "block")]
            steps += [BoundExtent(name, column.name, self.room), *(BoundExtent(name, var, 1) for var in single)]
        elif self.room and not column.fixed:
            # Without a fixed size, accumulators would be allocated for each block of columns.
            steps.append(BoundStorage(name, column.name, self.room))
        if self.beside:
            steps.append(ReorderStorage(name, (column.name, self.beside.name, *self.outer, *each.added)))
            steps += [Fuse(name, column.name, self.beside.name, self.along, update) for update in (None, 0)]
        elif self.wide and (self.width % self.lanes or not column.fixed):
            # Whole vectors of accumulators: what masked stores write stays in memory (build/llvm/partial_vectors.py).
            steps.append(AlignStorage(name, column.name, self.lanes))
        return steps

    def initial(self, each: Accumulators) -> list[Step]:
        """Steps of what accumulators begin with."""
        vector = self._in_vectors(each, None)
        return [*vector.steps, *self._in_registers(each, vector, None)]

    def update(self, each: Accumulators, sums: Sequence[Accumulators]) -> list[Step]:
        """Steps of the loops that add up rows, or what other accumulators of `sums` hold."""
        name, vector = each.func, self._in_vectors(each, 0)
        reads = each is sums[-1]
        # Where operands are turned, what adds up all chunks of rows is inside the loop over tiles, too.
        total = [other for other in sums if {"part"}.issuperset(other.added)][-1]
        held = 1
        if reads or (self.tiles and each is total):
            held = _held(self.kernel, self.stage, self.vectors)
        steps = [*vector.steps, *(self._in_registers(each, vector, 0) if held == 1 else self._in_chains(each, 0))]
        if f"{name}_chains" in (other.func for other in sums):
            steps.append(Unroll(name, each.rows[0], update=0))
        # An operand that lies across is read for as many of its lines as there are columns: all rows of a part of
        # these first, which adjoin in each line.
        turned = self.kernel.transposition if self.tiles and reads else None
        order = (*vector.loops, *each.rows, *each.around)
        if held > 1 or turned:
            inner, several = vector.loops
            together = (f"{self.along}_u",) if held > 1 else ()
            steps += [Split(name, several, several, var, held, update=0) for var in together]
            steps += [Unroll(name, var, update=0) for var in together]
            order = (inner, *together, *each.rows, several, *each.around)
        if each.added[-1:] == ("chain",):
            order = (order[0], "chain", *order[1:])
        steps.append(Reorder(name, order, update=0))
        if self.beside and self.wide and not longest(self.stage.updates).fixed:
            # Which vectors of the last step have all rows Halide finds out for the outermost loop, and forgets the
            # one over steps, where each vector was behind a guard: 247 us instead of 70.
            steps.append(NeverPartition(name, vector.loops[1], update=0))
        if turned:
            steps += turned_operands(self.kernel, turned, Level(name, several))
        return steps

    def _in_vectors(self, each: Accumulators, update: int | None) -> Cut:
        if not self.wide:
            return Cut((), (self.along,))
        return vectors(each.func, self.along, self.width, self.lanes, update)

    def _in_registers(self, each: Accumulators, vector: Cut, update: int | None) -> list[Step]:
        # Each accumulator has a place of its own, which may be a register.
        steps: list[Step] = [Unroll(each.func, vector.loops[1], update)] if self.whole else []
        return steps + self._in_chains(each, update)

    def _in_chains(self, each: Accumulators, update: int | None) -> list[Step]:
        return [Unroll(each.func, "chain", update)] if each.added[-1:] == ("chain",) else []


def reduce_columns(
    kernel: CpuKernel, stage: Stage, level: Level | None, beside: Loop | None = None, room: int = 0, at_a_time: int = 1
) -> list[Step]:
    """Steps that compute reduction `stage` at `level`, None for before everything else, in vectors of columns; those of
    all steps of the loop `beside` lie side by side in memory, and are one loop. `room` is the number of columns that
    the level computes at a time, if that is known whatever the sizes are, `at_a_time` the rows of a step of the loop
    over rows."""
    columns = _Columns(kernel, stage, beside, room)
    made = Accumulation(kernel, stage, level, columns.outer)
    if level is None:
        made.share_parts(at_a_time)
    made.cascade()
    if columns.wide and columns.column.fixed and not beside and not columns.whole:
        made.chain(columns.vectors)
    steps = made.steps
    for each in made.funcs:
        steps += [*columns.storage(each), *columns.initial(each), *columns.update(each, made.funcs)]
    return steps


def _held(kernel: CpuKernel, stage: Stage, available: int) -> int:
    """Vectors of columns whose accumulators stay in registers while all rows are read, of those that are available."""
    why = "as many additions as run at a time; in the cache, an accumulator would be loaded and stored for each element"
    held = next((count for count in range(HELD, 2 * HELD) if available % count == 0), HELD)
    return max(1, min(available, kernel.choices.number(REGISTERS, held, why, at=stage.name)))
