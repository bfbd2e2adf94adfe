"""A program for the sizes that it was captured with, where these are short: coordinates of a point, channels of a
pixel, elements of a head. How many vectors such a row has decides what its loops are, and it hardly ever changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import sympy

from halide_backend.program.index import SizeSymbol, expanded
from halide_backend.program.loop_program import Load, LoopProgram, Reduction

#: Elements of the longest such size, a side of most pictures: float32 of sixteen vectors of AVX-512. Registers hold the
#: accumulators of half as many, and a guard for the last one, which may be any of them, leaves those in memory; of the
#: other rows the vector at their end takes as long as several.
_LONGEST = 256

#: Fields that hold an `Extent`, an int where it is known.
_EXTENTS = frozenset({"extent", "stride", "first", "end", "size"})


def short_sizes(program: LoopProgram) -> dict[str, int]:
    """The sizes, by name, that are typically short and lie inside others in memory, or are reduced."""
    inside: set[sympy.Symbol] = set()
    for value in program.values:
        match value.attribute:
            case Load(index=index):
                inside |= index.free_symbols
            case Reduction(axes=axes):
                inside |= {axis.extent for axis in axes if isinstance(axis.extent, SizeSymbol)}
    for store in program.stores:
        inside |= store.index.free_symbols
    hints = {axis.extent: axis.hint for axis in program.axes}
    found: dict[str, int] = {}
    for size in program.sizes:
        hint = hints.get(size.value, size.hint)
        if size.value in inside and not size.data and hint is not None and 1 < hint <= _LONGEST:
            found[size.name] = hint
    return found


def for_sizes(program: LoopProgram, sizes: Mapping[str, int]) -> LoopProgram:
    """`program`, with the same arguments, for calls in which the sizes of these names are these numbers."""
    numbers: dict[sympy.Basic, sympy.Basic] = {
        size.value: sympy.Integer(sizes[size.name]) for size in program.sizes if size.name in sizes
    }
    known: LoopProgram = _substituted(program, numbers, "")
    # What is a number now is an argument as before, which nothing looks at.
    arguments = (own if new.value.is_Number else new for own, new in zip(program.sizes, known.sizes))
    return replace(known, sizes=tuple(arguments))


def _substituted(part: Any, numbers: Mapping[sympy.Basic, sympy.Basic], name: str) -> Any:
    """`part` of a program, which is called `name` in what it is a field of."""
    if isinstance(part, sympy.Basic):
        found = part.xreplace(numbers)
        found = expanded(found) if isinstance(found, sympy.Expr) else found
        return int(found) if name in _EXTENTS and found.is_Integer else found
    if isinstance(part, tuple):
        return tuple(_substituted(each, numbers, name) for each in part)
    if is_dataclass(part) and not isinstance(part, type):
        changes = {each.name: _substituted(getattr(part, each.name), numbers, each.name) for each in fields(part)}
        return replace(part, **changes)
    return part
