"""CpuKernel: what every rule for CPUs looks at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import Parallel, Split, Step, Vectorize

#: Operations below which starting threads costs more than it saves (about 2.5 us of serial work).
PARALLEL_WORK = 20_000

PARALLEL = Knob("parallel.threads", (False, True), "share loops among torch's threads")
VECTOR = Knob("vectors.bytes", (16, 32, 64, 128), "bytes of a vector; what is wider than a register takes several")
TASK_WORK = Knob("parallel.task_work", (1_000, 4_000, 16_000, 64_000), "least operations of one parallel step")


@dataclass(frozen=True)
class Level:
    """The loop `var` of Func `parent`: where the stages that it needs are computed."""

    parent: str
    var: str


@dataclass(frozen=True)
class Nest:
    """The loop nest of all outputs: its `steps`, and the `level` at which what they share is computed, if any."""

    steps: tuple[Step, ...]
    level: Level | None = None


@dataclass(frozen=True)
class CpuKernel:
    """The stages of a kernel on `device`, with the choices made so far."""

    graph: StageGraph
    device: Cpu
    choices: Choices
    transposition: Transposition | None = None

    def lanes(self, bits: int) -> int:
        """Elements of one vector: narrow types share the width of a 32-bit one, which they are computed in."""
        width = self.choices.number(VECTOR, self.device.vector_bytes, "a register of the processor")
        return width * 8 // max(bits, 32)

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
        """Whether any stage is a reduction."""
        return any(stage.role is Role.REDUCTION for stage in self.graph.stages)

    @cached_property
    def contiguous(self) -> str:
        """The contiguous axis: that along which most bytes have stride 1, or that of the mapping's transposition."""
        if self.transposition is not None:
            return self.transposition.across if self.transposition.results else self.transposition.column
        votes: dict[str, int] = {}
        for stage in self.graph.stages:
            for axis, size in stage.contiguous.items():
                votes[axis] = votes.get(axis, 0) + size
        return max(votes, key=lambda axis: votes[axis]) if votes else ""

    @cached_property
    def work(self) -> int:
        """Estimate of the kernel's arithmetic operations."""
        return self.graph.work

    @property
    def parallel(self) -> bool:
        """Whether loops are shared among threads."""
        why = f"{self.work} operations; threads pay from {PARALLEL_WORK} on"
        return bool(self.choices.choose(PARALLEL, self.work >= PARALLEL_WORK, why))

    def grain(self, extent: int, work: int) -> int:
        """Iterations of one task, in a loop of `extent` iterations of `work` operations: enough to be worth a call."""
        return min(max(1, self.task_work // max(work, 1)), max(1, extent // 16))

    @property
    def task_work(self) -> int:
        """The least number of operations of a parallel iteration."""
        return self.choices.number(TASK_WORK, 4_000, "the call of a step takes some nanoseconds")


@dataclass(frozen=True)
class Cut:
    """The `steps` that split loops, and the resulting `loops`, innermost first."""

    steps: tuple[Step, ...]
    loops: tuple[str, ...]


def vectors(func: str, var: str, extent: int, lanes: int, update: int | None = None) -> Cut:
    """Cut loop `var` of `extent` steps into vectors of `lanes` elements, fewer if it is shorter."""
    width = min(lanes, 1 << max(extent - 1, 0).bit_length())
    outer, inner = f"{var}_o", f"{var}_v"
    return Cut((Split(func, var, outer, inner, width, update), Vectorize(func, inner, update)), (inner, outer))


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
