"""The Vars of a program's axes: a Func has a loop for each axis of its value, innermost first."""

from __future__ import annotations

from collections.abc import Iterable

from halide_backend.program.index import SizeSymbol
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.stage import Loop


class Axes:
    """The axes of `program`, each of them one Var."""

    def __init__(self, program: LoopProgram) -> None:
        self.extents = {axis.name: axis.extent for axis in program.axes}
        self.hints = {axis.name: axis.hint for axis in program.axes}

    def definitions(self) -> list[str]:
        """Statements that define a Python variable for every axis, outermost first."""
        return [var(name) for name in outer_first(self.extents)]

    def loop(self, name: str, axis: str) -> Loop:
        """The loop Var `name` that runs along `axis`."""
        extent = self.extents[axis]
        if isinstance(extent, int):
            return Loop(name, extent, axis)
        size = extent.name if isinstance(extent, SizeSymbol) else ""
        return Loop(name, self.hints[axis], axis, fixed=False, size=size)

    def loops(self, axes: Iterable[str], *, group: bool = False) -> list[Loop]:
        """The loops of a Func over `axes`, innermost first; `group` matters where threads have a Var of their own."""
        return [self.loop(name, name) for name in inner_first(axes)]


def var(name: str) -> str:
    """The statement that defines a Var."""
    return f'{name} = hl.Var("{name}")'


def outer_first(axes: Iterable[str]) -> list[str]:
    """Axis names, outermost first: they are numbered from the outermost on."""
    return sorted(set(axes), key=lambda name: int(name[1:]))


def inner_first(axes: Iterable[str]) -> list[str]:
    """Axis names, innermost first."""
    return outer_first(axes)[::-1]
