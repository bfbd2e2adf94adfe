"""The loop nests that steps make, as far as legality needs them: every loop by name, length, axes and kind."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import Step
from halide_backend.schedule.tiling import Tiling

#: Steps that a loop of computed length is taken to have: what is legal does not depend on a typical length.
TYPICAL = 1 << 10


class Kind(Enum):
    """How the steps of a loop are run."""

    SERIAL = "serial"
    UNROLLED = "unrolled"
    VECTOR = "vectorized"
    PARALLEL = "parallel"
    BLOCKS = "shared out among blocks"
    THREADS = "shared out among threads"


class NestLoop(NamedTuple):
    """One loop of a nest: `axes` are those of the program that it runs along, `part` says that it is a piece of one.

    `extent` is `TYPICAL`, or follows from that, unless it is `fixed`.
    """

    name: str
    extent: int
    axes: frozenset[str]
    fixed: bool
    kind: Kind = Kind.SERIAL
    part: bool = False

    @property
    def reduces(self) -> bool:
        """Whether it is an RVar."""
        return "$" in self.name


@dataclass(frozen=True)
class Place:
    """Where a Func is computed or stored: inside loop `var` of `consumer`, or ("" and "") before everything else."""

    number: int
    step: Step
    consumer: str = ""
    var: str = ""


@dataclass
class Nest:
    """The loops of one definition, innermost first."""

    stage: Stage
    update: int | None
    loops: list[NestLoop]

    def find(self, name: str) -> int | None:
        """The place of the loop `name`, counted from the innermost one."""
        for k, loop in enumerate(self.loops):
            if loop.name == name:
                return k
        return None


@dataclass
class Nests:
    """All nests of a kernel, its call graph, and where its Funcs lie; steps change it one after another. Of a loop that
    is fused, `fused` has how many it makes along each axis."""

    stages: dict[str, Stage]
    outer: tuple[str, ...]
    tiling: Tiling | None
    nests: dict[tuple[str, int | None], Nest] = field(default_factory=dict)
    computed: dict[str, Place] = field(default_factory=dict)
    stored: dict[str, Place] = field(default_factory=dict)
    children: dict[str, Place] = field(default_factory=dict)
    fused: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    scheduled: set[str] = field(default_factory=set)
    shifted: dict[str, frozenset[str]] = field(default_factory=dict)
    specialized: set[str] = field(default_factory=set)
    clamped: tuple[str, ...] = ()
    narrow: str = ""

    @staticmethod
    def of(graph: StageGraph, tiling: Tiling | None) -> Nests:
        """Halide's default loops, of Funcs that are written for the `tiling` of a GPU, or for a CPU."""
        stages = {stage.name: stage for stage in graph.stages}
        nests = Nests(stages, graph.outer, tiling, clamped=graph.clamped, narrow=graph.narrow)
        for stage in graph.stages:
            nests.add(stage)
        return nests

    def add(self, stage: Stage) -> None:
        """A Func with its default loops, the RVars of an update inside of its Vars."""
        self.stages[stage.name] = stage
        self.nests[stage.name, None] = Nest(stage, None, [_loop(loop) for loop in stage.loops])
        if has_update(stage):
            copies = stage.role in (Role.SCAN, Role.STAGED_LOAD)
            along = {loop.axis for loop in stage.updates} if copies else set()
            pure = [loop for loop in stage.loops if loop.name not in along and loop.name != "p"]
            self.nests[stage.name, 0] = Nest(stage, 0, [_loop(loop) for loop in (*stage.updates, *pure)])

    @property
    def on_gpu(self) -> bool:
        """Whether the kernel is one of a GPU."""
        return self.tiling is not None

    @property
    def outputs(self) -> list[Stage]:
        """The outputs, but for the status."""
        found = [stage for stage in self.stages.values() if stage.role in (Role.OUTPUT, Role.SCATTER)]
        return [stage for stage in found if stage.name != "status"]

    def of_func(self, func: str) -> list[Nest]:
        """Both definitions of a Func, or the one that it has."""
        return [self.nests[func, update] for update in (None, 0) if (func, update) in self.nests]

    def around(self, place: Place) -> list[tuple[Nest, int]]:
        """The nests inside which something at `place` is computed, innermost first, each with the place of the loop."""
        found = []
        seen: set[str] = set()
        current: Place | None = place
        while current is not None and current.consumer and current.consumer not in seen:
            seen.add(current.consumer)
            for nest in self.of_func(current.consumer):
                number = nest.find(current.var)
                if number is not None:
                    found.append((nest, number))
            current = self.computed.get(current.consumer)
        return found

    def steps_inside(self, place: Place) -> dict[str, int]:
        """How many steps loops inside of `place` make along each axis, as far as that is known of a loop that runs
        along several: not of parts of a fused one."""
        found: dict[str, int] = {}
        for nest, number in self.around(place):
            for k, loop in enumerate(nest.loops):
                for axis, count in self.steps_along(nest, loop).items():
                    found[axis] = found.get(axis, 1) * (count if k < number else 1)
        return found

    def steps_along(self, nest: Nest, loop: NestLoop) -> Mapping[str, int]:
        """The steps that a loop of `nest` makes along each of its axes, as far as they are known."""
        alone = dict.fromkeys(loop.axes, loop.extent) if len(loop.axes) == 1 else {}
        return self.fused.get((nest.stage.name, loop.name), alone)

    def enclosing(self, place: Place) -> list[NestLoop]:
        """All loops at `place` and around it, innermost first; each once, though both definitions of a Func may have
        it, as what it is in either."""
        found: dict[tuple[str, str], NestLoop] = {}
        for nest, number in self.around(place):
            for loop in nest.loops[number:]:
                key = nest.stage.name, loop.name
                if key not in found or found[key].kind is Kind.SERIAL:
                    found[key] = loop
        return list(found.values())

    def needs(self, func: str) -> set[str]:
        """The Funcs behind `func`, and itself."""
        found, stack = {func}, [func]
        while stack:
            calls = [call for call in self.stages[stack.pop()].calls if call in self.stages and call not in found]
            found.update(calls)
            stack += calls
        return found

    def needed_beside(self, func: str) -> set[str]:
        """The Funcs behind `func` and behind the outputs that are computed with it."""
        together = [name for name, place in self.children.items() if place.consumer == func]
        return set().union(*(self.needs(name) for name in (func, *together)))

    def users(self, func: str) -> set[str]:
        """The Funcs in whose loops `func` is called: those that call it, or have it inlined."""
        found, stack, seen = set(), [func], {func}
        while stack:
            current = stack.pop()
            for stage in self.stages.values():
                if current not in stage.calls or stage.name in seen:
                    continue
                seen.add(stage.name)
                if stage.name in self.computed or stage.role in (Role.OUTPUT, Role.SCATTER):
                    found.add(stage.name)
                else:
                    stack.append(stage.name)
        return found

    def has_more(self, func: str) -> bool:
        """Whether a Func may have more points than its loops say, because it, or one that needs it, is shifted."""
        return any(stage.shifted and func in self.needs(stage.name) for stage in self.stages.values())

    def redirect(self, consumer: str, old: str, new: str) -> None:
        """Let `consumer` call `new` instead of `old`."""
        stage = self.stages[consumer]
        self.rename(replace(stage, calls=tuple(new if call == old else call for call in stage.calls)))

    def rename(self, stage: Stage) -> None:
        """Put `stage` in the place of the one of its name; its loops stay."""
        self.stages[stage.name] = stage
        for nest in self.of_func(stage.name):
            nest.stage = stage


def points(stage: Stage) -> int:
    """Points of its whole iteration space, updates included."""
    return math.prod(loop.extent if loop.fixed else TYPICAL for loop in (*stage.loops, *stage.updates))


def has_update(stage: Stage) -> bool:
    """Whether the Func has an update definition."""
    return bool(stage.updates) or stage.role in (Role.REDUCTION, Role.SCATTER)


def _loop(loop: Loop) -> NestLoop:
    return NestLoop(loop.name, loop.extent if loop.fixed else TYPICAL, frozenset([loop.axis]), loop.fixed)
