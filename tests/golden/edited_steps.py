"""Plans with mistakes in them: the steps of a kernel, edited at random."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from halide_backend.schedule.stage import StageGraph
from halide_backend.schedule.steps import Step

_NUMBERS = (0, 1, 2, 3, 4, 5, 7, 8, 13, 16, 32, 64, 100, 128, 1000, 1024, 4096)
_MEMORIES = ("Auto", "Heap", "Stack", "GPUShared", "Register")
_TAILS = ("GuardWithIf", "RoundUp", "ShiftInwards", "Predicate")

#: Fields that name a Func, and those that name a loop.
_FUNCS, _LOOPS = ("func", "consumer", "parent", "source"), ("old", "inner", "outer", "var", "rvar", "at", "along")


class EditedSteps:
    """Endless edits of `steps`; equal seeds give equal ones."""

    def __init__(self, steps: Sequence[Step], graph: StageGraph, seed: object) -> None:
        self._steps = tuple(steps)
        self._random = random.Random(str(seed))
        self._funcs = sorted({stage.name for stage in graph.stages} | {step.func for step in steps})
        loops = {loop.name for stage in graph.stages for loop in (*stage.loops, *stage.updates)}
        loops |= {
            str(value) for step in steps for f in fields(step) if f.name in _LOOPS for value in _flat(step, f.name)
        }
        self._loops = sorted(loops | {"new", "r$new"})
        self._kinds = [Step.kinds[name] for name in sorted(Step.kinds)]

    def next(self) -> tuple[Step, ...]:
        """Another plan, one to three edits away."""
        steps = list(self._steps)
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            edit = self._random.choice((self._drop, self._swap, self._repeat, self._change, self._change, self._insert))
            edit(steps)
        return tuple(steps)

    def _drop(self, steps: list[Step]) -> None:
        if steps:
            steps.pop(self._random.randrange(len(steps)))

    def _swap(self, steps: list[Step]) -> None:
        if len(steps) > 1:
            a, b = self._random.sample(range(len(steps)), 2)
            steps[a], steps[b] = steps[b], steps[a]

    def _repeat(self, steps: list[Step]) -> None:
        if steps:
            steps.insert(self._random.randrange(len(steps) + 1), self._random.choice(steps))

    def _change(self, steps: list[Step]) -> None:
        if steps:
            place = self._random.randrange(len(steps))
            step = steps[place]
            name = self._random.choice([f.name for f in fields(step)])
            steps[place] = replace(step, **{name: self._value(step, name)})

    def _insert(self, steps: list[Step]) -> None:
        kind: Any = self._random.choice(self._kinds)
        like = self._random.choice(steps) if steps else None
        wanted = {f.name: self._argument(f.name, str(f.type), like) for f in fields(kind) if f.default is MISSING}
        if any(f.name == "update" for f in fields(kind)):
            wanted["update"] = self._random.choice((None, 0))
        steps.insert(self._random.randrange(len(steps) + 1), kind(**wanted))

    def _value(self, step: Step, name: str) -> Any:
        value = getattr(step, name)
        if name in ("order", "vars"):
            names = list(value)
            self._random.shuffle(names)
            return tuple(names[: self._random.choice((len(names), len(names), 1))])
        if isinstance(value, int) and name != "update":
            return self._random.choice((value * 2, value // 2, value + 1, *_NUMBERS))
        return self._argument(name, type(value).__name__, step)

    def _argument(self, name: str, kind: str, like: Step | None) -> Any:
        if name in _FUNCS:
            return self._random.choice((self._random.choice(self._funcs), getattr(like, "func", "none")))
        if name == "update":
            return self._random.choice((None, 0, 1))
        if name == "memory":
            return self._random.choice(_MEMORIES)
        if name == "tail":
            return self._random.choice(_TAILS)
        if name in ("order", "vars"):
            return tuple(self._random.sample(self._loops, min(2, len(self._loops))))
        if "int" in kind:
            return self._random.choice(_NUMBERS)
        if name == "into":
            return self._random.choice(("made", *self._funcs))
        near = _flat(like, "var") if like is not None else ()
        return self._random.choice((self._random.choice(self._loops), *near))


def _flat(step: Step | None, name: str) -> tuple[str, ...]:
    value = getattr(step, name, ())
    return (value,) if isinstance(value, str) else tuple(value or ())
