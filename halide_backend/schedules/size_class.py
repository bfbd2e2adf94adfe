"""The sizes that a schedule of a kernel with dynamic shapes is for."""

from __future__ import annotations

from dataclasses import dataclass

from halide_backend.program.loop_program import LoopProgram

#: Lengths of one class differ by less than this factor: a guess, wide enough that lengths which vary from call to call
#: seldom leave it.
_FACTOR = 4


@dataclass(frozen=True)
class SizeRange:
    """From `least` to `most` iterations of the dynamic axis called `axis`, both included."""

    axis: str
    least: int
    most: int


def size_class(program: LoopProgram) -> tuple[SizeRange, ...]:
    """The class of the typical lengths of `program`, those it was compiled with first: for each dynamic axis the range
    from one power of four to the next. Empty if all shapes are static.
    """
    return tuple(_range(axis.name, axis.hint) for axis in program.axes if not isinstance(axis.extent, int))


def fits(sizes: tuple[SizeRange, ...], program: LoopProgram) -> bool:
    """Whether the typical lengths of `program` are within `sizes`; an axis without a range may have any length.

    A range of an axis that `program` has not, or whose extent is static, fits nothing.
    """
    hints = {axis.name: axis.hint for axis in program.axes if not isinstance(axis.extent, int)}
    return all(each.axis in hints and each.least <= hints[each.axis] <= each.most for each in sizes)


def _range(axis: str, hint: int) -> SizeRange:
    least = 1
    while least * _FACTOR <= hint:
        least *= _FACTOR
    return SizeRange(axis, least if hint > 0 else 0, least * _FACTOR - 1)
