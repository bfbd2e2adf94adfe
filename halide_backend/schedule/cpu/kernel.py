"""CpuKernel: what every rule for CPUs looks at."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import BoundExtent, Parallel, Split, Step, Vectorize

#: Operations below which starting threads costs more than it saves (about 2.5 us of serial work).
PARALLEL_WORK = 20_000

#: Vectors of rows from which on, and operations for each element of a row from which on, short rows lie in vectors side
#: by side: an element that is loaded or stored alone takes about two instructions. Fewer are enough if none is stored.
SHORT_ROW_VECTORS, SHORT_ROW_WORK, REDUCED_ROW_WORK = 4, 40, 20

#: Most steps of a piece of a loop of computed length: one shorter than the typical one has several pieces, too, and
#: legality lets a split add no more than this (`schedule.legality.directives.MOST_PADDING`).
MOST_COMPUTED = 1 << 16

#: Work of a Func that is one load: the load and its store.
COPY_WORK = 2

#: Operations for each element from which on a processor has too little else to do while they wait for each other, and
#: elements of a row of them; vector registers for two of each value; results that leave room for these.
CHAIN_WORK, LONG_ROW, MANY_REGISTERS, LONG_RESULTS = 30, 256, 32, 2

#: Bytes that are loaded one element at a time while a single number goes through an operation, or two: with 30,000
#: exponentials of sums of rows vectors along the rows were slower for 16 to 32 elements, by a script.
SINGLE_WORK = 8

#: A row of so many elements, or so many bits, is a vector of a smaller register.
SMALL_VECTOR, SMALL_REGISTER = 8, 128

#: Elements of a row from which on one that is gathered is a vector of its own: one load for all of them, where vectors
#: across rows take one for each.
GATHERED_ROW = 4

#: A longer row that is copied, and adjacent to the next one nowhere, is a masked vector: 97,000 of 10 bfloat16 took 180
#: us interleaved, and 114 us; of 5 as long either way (Zen 5, in turns by a script).
COPIED_ROW = 5

PARALLEL = Knob("parallel.threads", (False, True), "share loops among torch's threads")
VECTOR = Knob("vectors.bytes", (16, 32, 64, 128, 256), "bytes of a vector; what is wider than a register takes several")
INTERLEAVED = Knob(
    "column_blocks.interleaved",
    (False, True),
    "vectors across rows of a few elements, interleaved when they are stored",
)
ACROSS = Knob("vectors.across_rows", (False, True), "vectors across rows, where a row is shorter than a vector")
TASK_WORK = Knob("parallel.task_work", (1_000, 4_000, 16_000, 64_000), "least operations of one parallel iteration")


@dataclass(frozen=True)
class Level:
    """The loop `var` of Func `parent`: where the stages that it needs are computed."""

    parent: str
    var: str


@dataclass(frozen=True)
class Nest:
    """The loop nest of all outputs: its `steps`, and the `level` at which what they share is computed, if any.

    `around` has the loop of the parent along each axis around that, outermost first: the level at which what is read
    along the further axes is computed. `threads` is the axis that threads share, "" for that of the blocks, or none.
    `storage` is the loop of one task, or of a block of `rows`, where the level is a loop inside it. `room` are, by
    axis, the elements that the level computes at a time, if they are known whatever the sizes are. `across` is the axis
    of rows if what is made of the result of each is computed in vectors. `single` are axes of which the level computes
    one point at a time, which Halide does not see where outputs of computed length are computed together, or where
    there is a guard: it takes the number of points for unknown. If there is one, so is the point beyond the end, where
    loads take the last one.
    """

    steps: tuple[Step, ...]
    level: Level | None = None
    around: tuple[tuple[str, Level], ...] = ()
    threads: str = ""
    storage: Level | None = None
    rows: int = 1
    room: Mapping[str, int] = field(default_factory=dict)
    across: str = ""
    single: tuple[str, ...] = ()

    def bounded(self, stage: Stage, funcs: Iterable[str]) -> list[Step]:
        """Steps that compute one point along `single` of `funcs`, the parts of `stage`, and rows of it for its room."""
        bound = [(func, loop, 1) for func in funcs for loop in stage.loops if loop.axis in self.single]
        if self.across in self.room:
            bound += [(stage.name, loop, self.room[self.across]) for loop in stage.loops if loop.axis == self.across]
        return [BoundExtent(func, loop.name, extent) for func, loop, extent in bound]


@dataclass(frozen=True)
class CpuKernel:
    """The stages of a kernel on `device`, with the choices made so far."""

    graph: StageGraph
    device: Cpu
    choices: Choices
    transposition: Transposition | None = None

    def lanes(self, bits: int) -> int:
        """Elements of one vector: narrow types share the width of a 32-bit one, which they are computed in, unless they
        are only copied."""
        register, work = self.device.vector_bytes, self._work_of_long_chains
        why = f"{work} operations one after another: two registers at a time" if work else "a register of the processor"
        width = self.choices.number(VECTOR, 2 * register if work else register, why)
        return width * 8 // max(bits, 8 if self.copies else 32)

    @cached_property
    def _work_of_long_chains(self) -> int:
        """The operations of a point of all results if nothing but computing takes time, and it is long, else 0."""
        results = sum(each.values for each in self.outputs)
        if self.reduces or self.transposition is not None or results not in range(1, LONG_RESULTS + 1):
            return 0
        if not all(each.loops == self.parent.loops != () for each in self.outputs):
            return 0
        waits = any(each.gathers or each.cases or each.branches for each in self.graph.stages)
        if waits or self.device.vector_registers < MANY_REGISTERS:
            return 0
        work = sum(stage.work for stage in (*self.outputs, *self.behind(self.outputs)))
        return work if work >= CHAIN_WORK and self.outputs[0].loops[0].extent >= LONG_ROW else 0

    @cached_property
    def copies(self) -> bool:
        """Whether nothing is computed: each output is a load, or a constant."""
        return all(
            stage.role is Role.OUTPUT and not stage.calls and stage.work <= COPY_WORK for stage in self.graph.stages
        )

    @cached_property
    def outputs(self) -> list[Stage]:
        """The pure outputs, without the status of checks."""
        return [stage for stage in self.graph.outputs if stage.role is Role.OUTPUT and stage.name != "status"]

    @cached_property
    def parent(self) -> Stage:
        """The output whose loops the others are fused with."""
        return max(self.outputs, key=lambda stage: (len(stage.loops), stage.points))

    @cached_property
    def outer(self) -> list[str]:
        """The outermost axes that all outputs have."""
        return [axis for axis in self.graph.outer if all(has(stage, axis) for stage in self.outputs)]

    @cached_property
    def inside(self) -> frozenset[str]:
        """The Funcs that only the pure outputs need."""
        others = [stage for stage in self.graph.outputs if stage not in self.outputs]
        return self._needed_by(self.outputs) - self._needed_by(others)

    @cached_property
    def invariant(self) -> frozenset[str]:
        """Reductions that are the same all along an outer axis, those of expanded operands, and what they need."""
        reductions = [stage for stage in self.graph.stages if stage.role is Role.REDUCTION]
        alike = [stage for stage in reductions if not all(has(stage, axis) for axis in self.graph.outer)]
        return self._needed_by(alike).union(stage.name for stage in alike)

    def behind(self, stages: list[Stage]) -> list[Stage]:
        """The stages that `stages` need."""
        return [self.graph[name] for name in self._needed_by(stages)]

    def _needed_by(self, stages: list[Stage]) -> frozenset[str]:
        needed: set[str] = set()
        stack = [call for stage in stages for call in stage.calls]
        while stack:
            name = stack.pop()
            if name not in needed:
                needed.add(name)
                stack += self.graph[name].calls
        return frozenset(needed)

    @cached_property
    def reduces(self) -> bool:
        """Whether any stage is a reduction, but for those of checks."""
        others = [stage for stage in self.graph.outputs if stage.name != "status"]
        return any(self.graph[name].role is Role.REDUCTION for name in self._needed_by(others))

    @cached_property
    def contiguous(self) -> str:
        """The contiguous axis: that along which most bytes have stride 1, or that of the mapping's transposition."""
        if self.transposition is not None:
            return self.transposition.across if self.transposition.results else self.transposition.column
        return self.graph.outer[-1] if self.short_rows else self.across or self._along_memory

    @cached_property
    def across(self) -> str:
        """The axis across rows of a few elements, if vectors lie along it and are interleaved when they are stored."""
        parent = self.parent.loops if self.outputs else ()
        if self.transposition is not None or self.reduces or len(parent) < 2:
            return ""
        row, across, lanes = parent[0].axis, parent[1].axis, self.lanes(self.parent.bits)
        if row not in self.outer or self._along_memory not in (row, across):
            return ""
        alike = all([loop.axis for loop in stage.loops[:2]] == [row, across] for stage in self.outputs)
        rows = parent[0]
        if not alike or across not in self.outer or not rows.fixed or not 1 < rows.extent < lanes <= parent[1].extent:
            return ""
        if rows.extent >= GATHERED_ROW and any(row in stage.gathered for stage in self.graph.stages):
            return ""
        why = f"a vector holds {lanes} elements, a row {rows.extent}"
        beside = not self.copies or any(across in stage.contiguous for stage in self.graph.stages)
        pays = 2 * rows.extent <= lanes and (beside or rows.extent <= COPIED_ROW)
        whole = rows.extent >= SMALL_VECTOR or rows.extent * self.parent.bits >= SMALL_REGISTER
        if pays and whole and rows.extent.bit_count() == 1:
            # Without interleaving, unless its elements come from several lines.
            pays = any(each.contiguous.get(row, 0) != each.traffic for each in self.graph.stages)
        return across if self.choices.flag(INTERLEAVED, pays, why) else ""

    @cached_property
    def _along_memory(self) -> str:
        votes, single = Counter[str](), Counter[str]()
        for stage in self.graph.stages:
            votes.update(stage.contiguous)
            single.update({axis: size * stage.points for axis, size in stage.across.items()})
        # Of axes with as many votes, as an unfolded picture has, the longest: a vector along taps of a filter is short.
        extents = {loop.axis: loop.extent for stage in self.graph.stages for loop in (*stage.loops, *stage.updates)}
        most = max(votes, key=lambda axis: (votes[axis], extents[axis]), default="")
        # Operands may be smaller than a result, but read again for each row of another one. What is made of the results
        # of rows is computed for one at a time.
        alone = Counter[str]()
        for stage in self.outputs:
            work = SINGLE_WORK * stage.points * self.inlined_work(stage)
            alone.update({axis: work for axis in votes if not has(stage, axis)})
        fewer = [
            axis for axis in votes if single[axis] + alone[axis] < single[most] and extents[axis] >= self.lanes(32)
        ]
        return min(fewer, key=lambda axis: single[axis], default=most)

    @cached_property
    def short_rows(self) -> bool:
        """Whether vectors run across rows of memory, each of which a vector could hold: what is computed for each row,
        reductions and functions of their results, is worth more than the loads and stores of single elements."""
        row, outer = self._along_memory, self.graph.outer
        reductions = [stage for stage in self.graph.stages if stage.role is Role.REDUCTION]
        if self.transposition is not None or not (reductions and outer and self.outputs) or row in outer:
            return False
        if any({loop.axis for loop in stage.updates} != {row} for stage in reductions):
            return False
        lanes = self.lanes(32)
        elements = max(loop.extent for stage in reductions for loop in stage.updates)
        rows = max((loop.extent for stage in self.outputs for loop in stage.loops if loop.axis == outer[-1]), default=0)
        each = self.work / max(1, elements * math.prod(loop_along(self.parent, axis).extent for axis in self.outer))
        if elements >= lanes or rows < SHORT_ROW_VECTORS * lanes:
            return False
        along = any(has(stage, row) for stage in self.outputs)
        enough = SHORT_ROW_WORK if along else REDUCED_ROW_WORK
        why = f"{each:.0f} operations an element; from {enough} on they are worth single loads{' and stores' * along}"
        return self.choices.flag(ACROSS, each >= enough, why)

    @cached_property
    def work(self) -> int:
        """Estimate of the kernel's arithmetic operations."""
        return self.graph.work

    def inlined_work(self, stage: Stage) -> int:
        """Estimate of the operations of one point of `stage`, and of the values that are inlined into it."""
        inlined = {each.name: each for each in self.graph.stages if each.role is Role.INLINE}
        work, stack = stage.work, [stage]
        while stack:
            calls = [inlined.pop(call) for call in stack.pop().calls if call in inlined]
            work += sum(each.work for each in calls)
            stack += calls
        return work

    @property
    def parallel(self) -> bool:
        """Whether loops are shared among threads."""
        why = f"{self.work} operations; threads pay from {PARALLEL_WORK} on"
        return bool(self.choices.choose(PARALLEL, self.work >= PARALLEL_WORK, why))

    def is_uncounted(self, axis: str) -> bool:
        """Whether Halide does not see that a step along outer axis `axis` needs one point of what is computed in it:
        the outputs' loops are fused, and of computed length."""
        computed = (self.graph[name].role in (Role.REDUCTION, Role.SHARED) for name in self.inside)
        return len(self.outputs) > 1 and not loop_along(self.parent, axis).fixed and any(computed)

    def single(self, tasks: Tasks, axes: Iterable[str]) -> tuple[str, ...]:
        """Those of the outer `axes` for which the nest says so (`Nest.single`): each of their loops is whole."""
        return tuple(each for each in axes if self.is_uncounted(each) and (each != tasks.axis or tasks.grain == 1))

    def grain(self, extent: int, work: int) -> int:
        """Iterations of one task, in a loop of `extent` iterations of `work` operations: enough to be worth a call.

        Where some more divide the extent, no task needs a guard for its end, and Halide compiles the loop's body once.
        """
        enough = min(max(1, self.task_work // max(work, 1)), max(1, extent // 16))
        return next((count for count in range(enough, 2 * enough) if extent % count == 0), enough)

    @property
    def task_work(self) -> int:
        """The least number of operations of a parallel iteration."""
        return self.choices.number(TASK_WORK, 16_000, "each parallel iteration is a call, of some nanoseconds")


@dataclass(frozen=True)
class Cut:
    """The `steps` that split loops, and the resulting `loops`, innermost first."""

    steps: tuple[Step, ...]
    loops: tuple[str, ...]


def vectors(func: str, var: str, extent: int, lanes: int, update: int | None = None, tail: str = Split.tail) -> Cut:
    """Cut loop `var` of `extent` steps into vectors of `lanes` elements, fewer if it is shorter."""
    width = min(lanes, 1 << max(extent - 1, 0).bit_length())
    outer, inner = f"{var}_o", f"{var}_v"
    return Cut((Split(func, var, outer, inner, width, update, tail), Vectorize(func, inner, update)), (inner, outer))


@dataclass(frozen=True)
class Tasks:
    """What threads share: the steps of the loop along `axis`, "" for none, of which `grain` make one task."""

    axis: str = ""
    grain: int = 1

    @property
    def inner(self) -> str:
        """The loop along the axis inside a task, or the whole of it."""
        return f"{self.axis}_r" if self.grain > 1 else self.axis

    @property
    def outer(self) -> str:
        """The loop over tasks."""
        return f"{self.axis}_t" if self.grain > 1 else self.axis

    def cut(self, func: str, axes: Iterable[str]) -> Cut:
        """Cut the loops of `func` along `axes`, innermost first, into tasks."""
        steps: list[Step] = []
        loops: list[str] = []
        for axis in axes:
            if axis == self.axis and self.grain > 1:
                steps.append(Split(func, axis, self.outer, self.inner, self.grain))
                loops += [self.inner, self.outer]
            else:
                loops.append(axis)
        return Cut(tuple(steps), tuple(loops))

    def shared(self, func: str) -> list[Step]:
        """Steps that share the tasks of `func` among threads."""
        return [Parallel(func, self.outer)] if self.axis else []


def has(stage: Stage, axis: str) -> bool:
    """Whether one of the stage's pure loops runs along `axis`."""
    return any(loop.axis == axis for loop in stage.loops)


def loop_along(stage: Stage, axis: str) -> Loop:
    """The stage's pure loop along `axis`."""
    return next(loop for loop in stage.loops if loop.axis == axis)


def same_loops(stage: Stage, other: Stage) -> bool:
    """Whether both have pure loops along the same axes."""
    return {loop.axis for loop in stage.loops} == {loop.axis for loop in other.loops}
