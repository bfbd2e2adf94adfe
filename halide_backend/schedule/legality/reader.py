"""What a step names: Funcs, definitions and loops that exist when it is its turn, and arguments within limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any

from halide_backend.schedule import steps as step
from halide_backend.schedule.legality.nests import Kind, Nest, Nests
from halide_backend.schedule.legality.refusal import refuse
from halide_backend.schedule.stage import Stage

_NAME = re.compile(r"[A-Za-z_]\w*(\$\w+)?|\w+\$\w+", re.ASCII)


def _names(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(name, str) for name in value)


#: Whether a value is what the annotation of a step's field says.
_FITS: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": lambda value: type(value) is int,
    "int | None": lambda value: value is None or type(value) is int,
    "tuple[str, ...]": _names,
    "str | tuple[str, ...]": lambda value: isinstance(value, str) or _names(value),
}


@cache
def _fields(kind: type[step.Step]) -> list[tuple[str, str, Callable[[Any], bool]]]:
    """The names of a step's fields, their annotations, and whether a value is what those say."""
    return [(f.name, str(f.type), _FITS[str(f.type)]) for f in fields(kind)]


class Reader:
    """Finds what steps name in `nests`; every method refuses the step `each`, whose turn it is, where it is absent."""

    def __init__(self, nests: Nests) -> None:
        self.nests = nests
        self.number = 0
        self.atomic: set[str] = set()
        self.seen: set[tuple[type[step.Step], str]] = set()

    def begin(self, number: int, each: step.Step) -> None:
        """It is the turn of step `number`."""
        self.number = number
        if not isinstance(each, step.Step):
            refuse(number, each, "it is no step", f"use one of {', '.join(sorted(step.Step.kinds))}")
        for name, annotation, fits in _fields(type(each)):  # type: ignore[arg-type]  # mypy takes Step's __hash__ for its class's
            value = getattr(each, name)
            if not fits(value):
                refuse(number, each, f"{name} is {value!r}", f"it has to be: {annotation}")
        self.stage(each, each.func)

    def funcs(self) -> str:
        return f"use one of {', '.join(self.nests.stages)}"

    def stage(self, each: step.Step, name: str) -> Stage:
        if name not in self.nests.stages:
            refuse(self.number, each, f"there is no Func {name!r} at this step", self.funcs())
        return self.nests.stages[name]

    def once(self, each: step.Step, kind: type[step.Step] | None = None) -> None:
        key = kind or type(each), each.func
        if key in self.seen:
            refuse(self.number, each, "an earlier step has said this of the Func, or the opposite")
        self.seen.add(key)

    def nest(self, each: step.Step) -> Nest:
        update = getattr(each, "update", None)
        nest = self.nests.nests.get((each.func, update))
        if nest is None:
            has = "an update definition, of number 0" if (each.func, 0) in self.nests.nests else "no update definition"
            refuse(self.number, each, f"there is no update {update!r}", f"{each.func} has {has}")
        return nest

    def place(self, each: step.Step, nest: Nest, name: str) -> int:
        place = nest.find(name)
        if place is None:
            cure = f"it has {', '.join(loop.name for loop in nest.loops) or 'none'}"
            refuse(self.number, each, f"the Func has no loop {name!r} at this step", cure)
        return place

    def serial(self, each: step.Step, nest: Nest, name: str) -> int:
        place = self.place(each, nest, name)
        if nest.loops[place].kind is not Kind.SERIAL:
            refuse(self.number, each, f"the loop {name!r} is {nest.loops[place].kind.value} already")
        return place

    def new(self, each: step.Step, nest: Nest, *names: str, rvar: bool = False) -> None:
        for name in names:
            if not _NAME.fullmatch(name) or ("$" in name) is not rvar:
                cure = "pieces of an RVar have a $ in their name, those of a Var none"
                refuse(self.number, each, f"{name!r} cannot be the name of this loop", cure)
            if name == "s":
                refuse(self.number, each, "Halide computes half of a Func whose loop is called s", "call it otherwise")
            if nest.find(name) is not None or names.count(name) > 1:
                refuse(self.number, each, f"the Func has a loop {name!r} already", "call it otherwise")

    def integer(self, each: step.Step, value: int, least: int, most: int, what: str) -> int:
        if not least <= value <= most:
            refuse(self.number, each, f"{what} is {value!r}", f"use a number from {least} to {most}")
        return value

    def only_on(self, each: step.Step, gpu: bool) -> None:
        if self.nests.on_gpu is not gpu:
            refuse(self.number, each, f"this step is for a {'GPU' if gpu else 'CPU'}")
