"""Rules for CPUs: what becomes of the loops of a kernel, from the structure of its stages alone.

The rules know the width of a vector register and nothing of the number of threads: parallel loops have more steps than
any machine has cores and the runtime gives each thread a contiguous share. The numbers are explained in
docs/design/schedules.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.lanes import RUNNING_TERMS, reduce_in_lanes
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import (
    ComputeAt,
    ComputeRoot,
    ComputeWith,
    Parallel,
    Reorder,
    RFactor,
    Split,
    Step,
    Unroll,
    Vectorize,
)

#: Operations below which starting threads costs more than it saves (about 2.5 us of serial work).
PARALLEL_WORK = 20_000

PARALLEL = Knob("parallel.threads", (False, True), "share loops among torch's threads")
TASK_WORK = Knob("parallel.task_work", (1_000, 4_000, 16_000, 64_000), "least operations of one parallel step")
COLUMNS = Knob("column_blocks.columns", (128, 256, 512, 1024, 2048), "columns of a block with accumulators")
TILE = Knob("transposes.tile", (4, 8, 16), "side of the tile through which a transposed operand is copied")


def cpu_steps(graph: StageGraph, device: Cpu, choices: Choices) -> tuple[Step, ...]:
    """The steps that the rules choose for `graph` on `device`.

    Raises:
        IllegalPlan: a requested knob has no such value.
    """
    rules = _Rules(graph, device, choices)
    rules.choose()
    return tuple(rules.steps)


def total_work(graph: StageGraph) -> int:
    """Estimate of the kernel's arithmetic operations."""
    return sum(stage.points * stage.work for stage in graph.stages)


@dataclass(frozen=True)
class _Level:
    """The loop `var` of `parent` inside which stages are computed."""

    parent: str
    var: str


class _Rules:
    def __init__(self, graph: StageGraph, device: Cpu, choices: Choices) -> None:
        self.graph = graph
        self.device = device
        self.choices = choices
        self.steps: list[Step] = []
        self.work = total_work(graph)
        self.contiguous = self._contiguous_axis()
        self.inside: set[str] = set()

    def add(self, *steps: Step) -> None:
        self.steps += steps

    def lanes(self, bits: int) -> int:
        """Elements of one vector: narrow types share the width of a 32-bit one, which they are computed in."""
        return self.device.vector_bytes * 8 // max(bits, 32)

    @property
    def parallel(self) -> bool:
        """Whether loops are shared among threads."""
        why = f"{self.work} operations; threads pay from {PARALLEL_WORK} on"
        return bool(self.choices.choose(PARALLEL, self.work >= PARALLEL_WORK, why))

    @property
    def task_work(self) -> int:
        """Operations that one parallel step has at least."""
        return self.choices.number(TASK_WORK, 4_000, "the call of a step takes some nanoseconds")

    def _contiguous_axis(self) -> str:
        """The axis along which most bytes are adjacent: the largest operands decide."""
        votes: dict[str, int] = {}
        for stage in self.graph.stages:
            for axis, size in stage.contiguous.items():
                votes[axis] = votes.get(axis, 0) + size
        return max(votes, key=lambda axis: votes[axis]) if votes else ""

    # -- the whole kernel --------------------------------------------------------------------------------------

    def choose(self) -> None:
        graph = self.graph
        outputs = [s for s in graph.outputs if s.role is Role.OUTPUT and s.name != "status"]
        # A stage that a separate loop nest reads as well has no place in either.
        rest = [stage for stage in graph.outputs if stage not in outputs]
        self.inside = self._needed_by(outputs) - self._needed_by(rest)
        level = self._outputs(outputs) if outputs else None
        for stage in graph.stages:
            shared = stage.role in (Role.SHARED, Role.PRESERVED)
            if stage.role in (Role.SERIAL, Role.SNAPSHOT):
                self.add(ComputeRoot(stage.name))
                self._separate(stage)
            elif stage.role is Role.REDUCTION:
                self._place(stage, level if stage.name in self.inside else None)
            elif shared and level is not None and stage.name in self.inside:
                self._store_stage(stage, level)
        for stage in graph.outputs:
            if stage.role is Role.SCATTER:
                self._scatter(stage)

    def _needed_by(self, stages: list[Stage]) -> set[str]:
        """The Funcs behind `stages`."""
        needed: set[str] = set()
        stack = [call for stage in stages for call in stage.calls]
        while stack:
            name = stack.pop()
            if name not in needed:
                needed.add(name)
                stack += self.graph[name].calls
        return needed

    def _place(self, stage: Stage, level: _Level | None) -> None:
        """Compute reduction `stage` at `level`, or before everything else."""
        if level is not None and not self.graph.row:
            level = None
        over = [loop.axis for loop in stage.updates]
        if self.contiguous in over or not stage.loops:
            self.add(
                *reduce_in_lanes(
                    stage,
                    along=self.contiguous if self.contiguous in over else over[0],
                    lanes=self.lanes(stage.bits),
                    at=(level.parent, level.var) if level else None,
                    parallel=level is None and self.parallel,
                    choices=self.choices,
                )
            )
            return
        self.add(ComputeAt(stage.name, level.parent, level.var) if level else ComputeRoot(stage.name))
        column = next((loop for loop in stage.loops if loop.axis == self.contiguous), stage.loops[0])
        outer = [loop.name for loop in stage.loops if loop is not column]
        serial = self._cascade(stage)
        lanes = self.lanes(stage.bits)
        if column.extent < lanes // 2:
            return
        for func, loops in serial.items():
            for update in (None, 0):
                pieces = self._vector(func, column.name, column.extent, lanes, update)
                if update is not None:
                    self.add(Reorder(func, (*pieces, *loops, *outer), update=0))

    def _cascade(self, stage: Stage) -> dict[str, tuple[str, ...]]:
        """Add up long columns in chunks of rows, and many chunks in blocks: a further accumulator for what one would
        round away. Returns the Funcs that result and the loops over rows of each one's update, innermost first."""
        names = tuple(loop.name for loop in stage.updates)
        rows = max(stage.updates, key=lambda loop: loop.extent)
        others = math.prod(loop.extent for loop in stage.updates if loop is not rows)
        if stage.operator not in ("sum", "prod") or rows.extent * others < 2 * RUNNING_TERMS:
            return {stage.name: names}
        total, blocks, chunks = stage.name, f"{stage.name}_blocks", f"{stage.name}_chunks"
        chunk, inner = f"{rows.name}_c", f"{rows.name}_i"
        size = max(1, RUNNING_TERMS // others)
        serial: dict[str, tuple[str, ...]] = {}
        self.add(Split(total, rows.name, chunk, inner, size, update=0))
        count = -(-rows.extent // size)
        if count >= 2 * RUNNING_TERMS:
            block, member = f"{rows.name}_b", f"{rows.name}_m"
            self.add(
                Split(total, chunk, block, member, math.isqrt(count), update=0),
                RFactor(total, block, "block", blocks),
                ComputeAt(blocks, total, block),
            )
            serial[total] = (block,)
            total, chunk = blocks, member
        self.add(RFactor(total, chunk, "chunk", chunks), ComputeAt(chunks, total, chunk))
        return serial | {total: (chunk,), chunks: tuple(inner if name == rows.name else name for name in names)}

    def _vector(self, func: str, var: str, extent: int, lanes: int, update: int | None = None) -> tuple[str, ...]:
        """Vectorize loop `var`; returns its loops, innermost first."""
        width = min(lanes, _power_of_two(extent))
        outer, inner = f"{var}_o", f"{var}_v"
        self.add(Split(func, var, outer, inner, width, update), Vectorize(func, inner, update))
        return inner, outer

    # -- outputs -----------------------------------------------------------------------------------------------

    def _outputs(self, outputs: list[Stage]) -> _Level | None:
        """Schedule all pure outputs; returns the level at which the stages they share are computed."""
        row = [axis for axis in self.graph.row if all(_has(stage, axis) for stage in outputs)]
        parent = max(outputs, key=lambda stage: (len(stage.loops), stage.points))
        inner_axes = {loop.axis for stage in outputs for loop in stage.loops} - set(row)
        reduces = any(stage.role is Role.REDUCTION for stage in self.graph.stages)
        if not row:
            for stage in outputs:
                self._separate(stage)
            return None
        if self.contiguous in row:
            return self._column_blocks(outputs, parent, row)
        if not inner_axes and not reduces:
            return self._column_blocks(outputs, parent, row)
        return self._rows(outputs, parent, row)

    def _separate(self, stage: Stage) -> None:
        """A loop nest of its own, for what shares no row with the outputs."""
        if not stage.loops:
            return
        inner, outer = stage.loops[0], stage.loops[0].name
        if stage.role is not Role.SERIAL:
            _, outer = self._vector(stage.name, inner.name, inner.extent, self.lanes(stage.bits))
        if self.parallel:
            rest = [loop.name for loop in stage.loops[1:] if loop.extent > 1]
            self.add(Parallel(stage.name, rest[-1] if rest else outer))

    def _rows(self, outputs: list[Stage], parent: Stage, row: list[str]) -> _Level:
        """Rows in parallel, each row's loops vectorized along memory."""
        last = _loop(parent, row[-1])
        step_work = max(1, self.work // math.prod(_loop(parent, axis).extent for axis in row))
        chosen, grain = self._parallel_axis(parent, row, step_work)
        for stage in outputs:
            inner = [loop for loop in stage.loops if loop.axis not in row]
            order: list[str] = []
            if inner:
                order += self._vector(stage.name, inner[0].name, inner[0].extent, self.lanes(stage.bits))
                order += [loop.name for loop in inner[1:]]
            order += self._row_loops(stage, row, chosen, grain)
            self.add(Reorder(stage.name, tuple(order)))
            if chosen:
                self.add(Parallel(stage.name, f"{chosen}_t" if grain > 1 else chosen))
        level = _Level(parent.name, f"{last.name}_r" if grain > 1 and chosen == last.axis else last.name)
        for stage in outputs:
            if stage is not parent:
                self.add(ComputeWith(stage.name, parent.name, level.var))
        return level

    def _parallel_axis(self, parent: Stage, row: list[str], step_work: int) -> tuple[str, int]:
        """The row axis whose steps the threads share, and how many of its steps make one task."""
        if not self.parallel:
            return "", 1
        chosen = next((axis for axis in row if _loop(parent, axis).extent >= 8), None)
        if chosen is None:
            chosen = max(row, key=lambda axis: _loop(parent, axis).extent)
        below = row[row.index(chosen) + 1 :]
        inside = step_work * math.prod(_loop(parent, axis).extent for axis in below)
        extent = _loop(parent, chosen).extent
        grain = min(max(1, self.task_work // inside), max(1, extent // 16))
        return chosen, grain

    def _row_loops(self, stage: Stage, row: list[str], chosen: str, grain: int) -> list[str]:
        """Names of the row's loops, innermost first, after splitting the parallel one into tasks."""
        names: list[str] = []
        for axis in reversed(row):
            if axis == chosen and grain > 1:
                self.add(Split(stage.name, axis, f"{axis}_t", f"{axis}_r", grain))
                names += [f"{axis}_r", f"{axis}_t"]
            else:
                names.append(axis)
        return names

    def _column_blocks(self, outputs: list[Stage], parent: Stage, row: list[str]) -> _Level:
        """Memory runs along the row itself: blocks of columns in parallel, each block a few vectors wide."""
        column = self.contiguous if self.contiguous in row else row[-1]
        others = [axis for axis in row if axis != column]
        extent = _loop(parent, column).extent
        transposed = self._transposed(parent, column)
        if transposed and all(_same_loops(stage, parent) for stage in outputs):
            return self._tiles(outputs, parent, column, transposed)
        lanes = self.lanes(parent.bits)
        block = self._block(extent, lanes, others, parent)
        reduces = any(stage.role is Role.REDUCTION for stage in self.graph.stages)
        for stage in outputs:
            inner = [loop.name for loop in parent.loops if loop.axis not in row and _has(stage, loop.axis)]
            self.add(Split(stage.name, column, f"{column}_b", f"{column}_i", block))
            vector = self._vector(stage.name, f"{column}_i", block, lanes)
            order = [*vector, *inner, f"{column}_b", *reversed(others)]
            self.add(Reorder(stage.name, tuple(order)))
            if self.parallel:
                outermost = next((a for a in others if _loop(parent, a).extent >= 4), f"{column}_b")
                self.add(Parallel(stage.name, outermost))
        var = f"{column}_b"
        if not reduces and all(_same_loops(stage, parent) for stage in outputs):
            var = f"{column}_i_o"
        for stage in outputs:
            if stage is not parent:
                self.add(ComputeWith(stage.name, parent.name, var))
        return _Level(parent.name, var)

    def _block(self, extent: int, lanes: int, others: list[str], parent: Stage) -> int:
        """Columns of one block: small enough to share out, large enough to be worth a task."""
        rows = math.prod(_loop(parent, axis).extent for axis in others)
        if not self.parallel or rows >= 16:
            wanted = extent
        else:
            each = max(1, self.work // (extent * rows))
            wanted = max(self.task_work // each, extent // 64)
        if any(stage.role is Role.REDUCTION for stage in self.graph.stages):
            why = "2 KiB of float32 accumulators stay in L1 beside the rows that stream through"
            wanted = min(wanted, self.choices.number(COLUMNS, 512, why))
        return max(lanes, -(-min(wanted, extent) // lanes) * lanes)

    # -- transposed operands -----------------------------------------------------------------------------------

    def _transposed(self, parent: Stage, column: str) -> list[Stage]:
        loads = [s for s in self.graph.stages if s.role is Role.STAGED_LOAD and s.name in self.inside]
        axes = {loop.axis for loop in parent.loops}
        return [s for s in loads if {loop.axis for loop in s.loops} <= axes and _along(s) != column]

    def _tiles(self, outputs: list[Stage], parent: Stage, column: str, loads: list[Stage]) -> _Level:
        """Square tiles: the transposed operands are read along their own memory into a small copy."""
        across = _along(loads[0])
        tile = self.choices.number(TILE, 8, "eight vector loads and stores of float32 on AVX2")
        # In one order for all of them, whatever the order in their memory is: their loops are fused.
        rest = [loop.name for loop in parent.loops if loop.axis not in (column, across)]
        for stage in outputs:
            self.add(
                Split(stage.name, column, f"{column}_o", f"{column}_v", tile),
                Split(stage.name, across, f"{across}_o", f"{across}_u", tile),
                Reorder(
                    stage.name,
                    (f"{column}_v", f"{across}_u", f"{column}_o", f"{across}_o", *rest),
                ),
                Vectorize(stage.name, f"{column}_v"),
                Unroll(stage.name, f"{across}_u"),
            )
            if self.parallel:
                self.add(Parallel(stage.name, rest[-1] if rest else f"{across}_o"))
        level = _Level(parent.name, f"{column}_o")
        for stage in outputs:
            if stage is not parent:
                self.add(ComputeWith(stage.name, parent.name, level.var))
        for load in loads:
            inner = _along(load)
            others = (loop.name for loop in load.loops if loop.name != inner)
            self.add(ComputeAt(load.name, level.parent, level.var))
            pieces = self._vector(load.name, inner, tile, tile) if inner == across else (inner,)
            self.add(Reorder(load.name, (*pieces, *others)))
        return level

    # -- stages and scatters -----------------------------------------------------------------------------------

    def _store_stage(self, stage: Stage, level: _Level) -> None:
        self.add(ComputeAt(stage.name, level.parent, level.var))
        inner = [loop for loop in stage.loops if loop.axis not in self.graph.row]
        columns = [loop for loop in stage.loops if loop.axis == self.contiguous]
        loop = next(iter(columns or inner), None)
        if loop is not None and loop.extent >= 4:
            lanes = self.lanes(stage.bits)
            vector = self._vector(stage.name, loop.name, loop.extent, lanes)
            rest = [other.name for other in stage.loops if other is not loop]
            self.add(Reorder(stage.name, (*vector, *rest)))

    def _scatter(self, stage: Stage) -> None:
        """Rows one after another, since two may meet at one place; columns side by side."""
        columns = [loop for loop in stage.loops if loop.name != "p"]
        if not columns or columns[0].extent < 4:
            return
        column = columns[0]
        block = max(self.lanes(stage.bits), -(-column.extent // 4 // 16) * 16)
        self.add(Split(stage.name, column.name, f"{column.name}_b", f"{column.name}_i", block, 0))
        vector = self._vector(stage.name, f"{column.name}_i", block, self.lanes(stage.bits), update=0)
        updates = tuple(loop.name for loop in stage.updates)
        self.add(Reorder(stage.name, (*vector, *updates, f"{column.name}_b"), update=0))
        if self.parallel:
            self.add(Parallel(stage.name, f"{column.name}_b", update=0))


def _has(stage: Stage, axis: str) -> bool:
    return any(loop.axis == axis for loop in stage.loops)


def _loop(stage: Stage, axis: str) -> Loop:
    return next(loop for loop in stage.loops if loop.axis == axis)


def _along(stage: Stage) -> str:
    """The axis along which a staged load is adjacent in memory."""
    return max(stage.contiguous, key=lambda axis: stage.contiguous[axis])


def _same_loops(stage: Stage, other: Stage) -> bool:
    return {loop.axis for loop in stage.loops} == {loop.axis for loop in other.loops}


def _power_of_two(extent: int) -> int:
    return 1 << max(extent - 1, 0).bit_length()
