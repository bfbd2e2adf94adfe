"""The Funcs in which a reduction across memory adds up its rows: parts for threads, blocks, chunks and chains of rows.

Each but the last adds up what the next one holds, and the last one reads the rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from halide_backend.schedule.cpu.kernel import MOST_COMPUTED, CpuKernel, Level
from halide_backend.schedule.cpu.turned_operands import reads_tiles
from halide_backend.schedule.cpu.vector_reductions import ROUNDS, RUNNING_TERMS
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import ComputeAt, ComputeRoot, Parallel, RFactor, Split, Step

PARTS = Knob(
    "column_reductions.parts",
    (4, 8, 16, 32, 64),
    "parts of the rows that threads share, each with accumulators of its own",
)

CHAINS = Knob(
    "column_reductions.chains", (1, 2, 4, 8), "rows that few columns add to accumulators of their own at the same time"
)

#: Vectors of columns whose accumulators stay in registers: as many additions as run at a time, of 4 cycles each.
HELD = 4

#: Parts of the rows: as many as threads of most machines, and more work in each than in adding up all of them.
_PARTS = 16

#: Operators whose terms may be taken in any order.
_COMMUTATIVE = ROUNDS | {"max", "min"}


@dataclass(frozen=True)
class Accumulators:
    """A Func of accumulators: the loops over `rows` of its update, innermost first, the loops `around` them, and the
    Vars that RFactor has `added`, the last of them with this Func."""

    func: str
    rows: tuple[str, ...]
    around: tuple[str, ...]
    added: tuple[str, ...] = ()


class Accumulation:
    """The Funcs of reduction `stage`, from the result to what reads the rows, and the steps that make them.

    It is computed at `level`, None for before everything else, inside of the loops `around`.
    """

    def __init__(self, kernel: CpuKernel, stage: Stage, level: Level | None, around: tuple[str, ...]) -> None:
        self._kernel, self._stage, self._level = kernel, stage, level
        self._updates = stage.updates
        self.steps: list[Step] = [ComputeAt(stage.name, level.parent, level.var) if level else ComputeRoot(stage.name)]
        self.funcs = [Accumulators(stage.name, tuple(loop.name for loop in stage.updates), around)]

    def share_parts(self, at_a_time: int) -> None:
        """Let threads share the rows, `at_a_time` in a step of their loop: each part has accumulators of its own."""
        stage, rows = self._stage, self._rows
        size = _rows_of_a_part(self._kernel, stage, at_a_time)
        if size >= rows.extent:
            return
        part, row, func = f"{rows.name}_p", f"{rows.name}_q", f"{stage.name}_parts"
        self.steps.append(Split(stage.name, rows.name, part, row, size, update=0))
        self._updates = tuple(Loop(row, size, loop.axis) if loop is rows else loop for loop in self._updates)
        self._factor(part, "part", func, None, tuple(loop.name for loop in self._updates))
        self.steps.append(Parallel(func, "part", update=0))
        # Halide puts the loop over parts, whose variable is pure, inside of those over rows.
        self.funcs[-1] = replace(self.funcs[-1], around=(*self.funcs[-1].around, "part"))

    def cascade(self) -> None:
        """Add up long columns in chunks of rows, and many chunks in blocks: a further accumulator for what one would
        round away. Of a computed number of rows there are chunks as well: they may be many in another call."""
        func, rows = self.funcs[-1].func, self._rows
        short = rows.fixed and rows.extent * self._others(rows) < 2 * RUNNING_TERMS
        if ROUNDS.isdisjoint(self._stage.operators) or short:
            return
        chunk, row = f"{rows.name}_c", f"{rows.name}_i"
        size = self._running(rows)
        self.steps.append(Split(func, rows.name, chunk, row, size, update=0))
        count = -(-rows.extent // size)
        if count >= 2 * RUNNING_TERMS:
            block, member = f"{rows.name}_b", f"{rows.name}_m"
            self.steps.append(Split(func, chunk, block, member, math.isqrt(count), update=0))
            self._factor(block, "block", f"{func}_blocks", Level(func, block), (member,))
            chunk = member
        rest = tuple(row if loop is rows else loop.name for loop in self._updates)
        self._factor(chunk, "chunk", f"{func}_chunks", Level(self.funcs[-1].func, chunk), rest)
        self._cut_tiles(rows, size)

    def chain(self, columns: int) -> None:
        """Add several rows to accumulators of their own, where there are fewer vectors of `columns` than additions that
        run at a time: each would wait for the one before it."""
        stage, rows, last = self._stage, self._rows, self.funcs[-1]
        chunked = last.added[-1:] == ("chunk",)
        place = Level(self.funcs[-2].func, self.funcs[-2].rows[0]) if chunked else None if last.added else self._level
        most = HELD // (columns * len(stage.operators))
        if place is None or not rows.fixed or not _COMMUTATIVE.issuperset(stage.operators) or most <= 1:
            return
        running = self._running(rows) if chunked else rows.extent
        count = next((each for each in (4, 2) if each <= most and running % each == 0 and running > each), 1)
        why = f"{columns} vectors of columns: an addition would wait for that of the row before"
        if (count := self._kernel.choices.number(CHAINS, count, why, at=stage.name)) == 1:
            return
        row = last.rows[self._updates.index(rows)]
        step, rest = f"{row}_u", f"{row}_h"
        self.steps.append(Split(last.func, row, rest, step, count, update=0))
        others = tuple(rest if name == row else name for name in last.rows)
        self._factor(step, "chain", f"{last.func}_chains", place, others)

    def _factor(self, row: str, var: str, func: str, place: Level | None, rest: tuple[str, ...]) -> None:
        """Give each step of loop `row` of the last Func accumulators of its own, those of `var` in Func `func`, which
        is computed at `place` and has the loops over `rest` of the rows."""
        last = self.funcs[-1]
        self.steps.append(RFactor(last.func, row, var, func))
        self.steps.append(ComputeAt(func, place.parent, place.var) if place else ComputeRoot(func))
        self.funcs[-1] = replace(last, rows=(row,))
        self.funcs.append(Accumulators(func, rest, last.around, (*last.added, var)))

    @property
    def _rows(self) -> Loop:
        """The loop that is cut: the longest one, unless tiles lie along it and a chunk would be less than one of them:
        each chunk would turn whole tiles again."""
        rows, turned = longest(self._updates), self._turned
        if turned is None or rows.axis != turned.across or self._running(rows) % turned.side == 0:
            return rows
        return longest([loop for loop in self._updates if loop is not rows] or [rows])

    @property
    def _turned(self) -> Transposition | None:
        """How operands are turned in tiles, if any is."""
        return self._kernel.transposition if reads_tiles(self._kernel, self._stage) else None

    def _cut_tiles(self, rows: Loop, size: int) -> None:
        """Cut the loop along which tiles lie, too, where many terms are left in chunks of `size` of the loop `rows`: in
        whole tiles."""
        turned, terms, last = self._turned, size * self._others(rows), self.funcs[-1]
        lines = next((loop for loop in self._updates if turned and loop.axis == turned.across), rows)
        if turned is None or lines is rows or terms < 2 * RUNNING_TERMS:
            return
        whole = turned.side * max(1, RUNNING_TERMS * lines.extent // (terms * turned.side))
        if whole >= lines.extent:
            return
        piece, line = f"{lines.name}_c", f"{lines.name}_i"
        self.steps.append(Split(last.func, lines.name, piece, line, whole, update=0))
        rest = tuple(line if name == lines.name else name for name in last.rows)
        self._factor(piece, "tiles", f"{last.func}_tiles", Level(last.func, piece), rest)

    def _others(self, rows: Loop) -> int:
        return math.prod(loop.extent for loop in self._updates if loop is not rows)

    def _running(self, rows: Loop) -> int:
        """Steps of loop `rows` in a chunk."""
        return max(1, RUNNING_TERMS // self._others(rows))


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
    if reads_tiles(kernel, stage):
        size = RUNNING_TERMS * -(-size // RUNNING_TERMS)
    return size if rows.fixed else min(size, MOST_COMPUTED)


def longest(loops: Sequence[Loop]) -> Loop:
    """The longest loop, of several the outermost one: the parts of it are apart in memory."""
    return max(reversed(loops), key=lambda loop: loop.extent)
