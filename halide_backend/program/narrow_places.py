"""Places to which coordinates in floating point are rounded, as an interpolation reads them: int32 holds them.

PyTorch computes them in int64, in which a clamp takes four times the instructions, and a conversion twice; without
AVX-512 one for each element, and as many for the conversion back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import sympy

from halide_backend.program.index import SizeSymbol
from halide_backend.program.index_range import magnitude
from halide_backend.program.loop_program import Load, LoopProgram, Number, Reduction, Scan, Value
from halide_backend.program.operation_names import COMPARISONS

_WIDE, _NARROW = "int64", "int32"

#: Operations that a place goes through, and numbers that are added to one at most.
_STEPS, _SMALL = frozenset({"add", "sub", "minimum", "maximum", "where"}), 1 << 16


#: How large the results of operations of coordinates are at most, from how large their operands are.
_BOUNDED: dict[str, Callable[[Iterable[float]], float]] = {
    **dict.fromkeys(("add", "sub"), sum),
    **dict.fromkeys(("maximum", "minimum", "neg", "abs", "floor", "ceil", "to_dtype"), max),
    "mul": math.prod,
}

#: Of coordinates below this the rounding errors of a few operations lead to no place that int32 does not hold.
_SURE = 1 << 30


def with_narrow_places(program: LoopProgram, *, saturating: bool) -> LoopProgram:
    """`program` whose places are int32 as long as they are but moved, bounded and compared with sizes and numbers.

    saturating: a conversion of what int32 does not hold gives the largest or the smallest one. x86 gives the smallest
    for either; without it, places are those of coordinates that are known to fit.
    """
    places = _places(program, saturating)
    if not places:
        return program
    takers = {k for k in places if program.values[k].operation in _STEPS} | _compared(program, places)
    known = {operand for k in takers for operand in _numbers(program, k)}
    narrow = places | known
    values = (replace(value, dtype=_NARROW) if k in narrow else value for k, value in enumerate(program.values))
    return replace(program, values=tuple(values))


def _places(program: LoopProgram, saturating: bool) -> set[int]:
    """Values that are such places, and all whose users take an int32 for one."""
    values = program.values
    found = {
        k
        for k, value in enumerate(values)
        if _is_rounded(program, value) and (saturating or _magnitude(program, value.operands[0]) < _SURE)
    }
    if not found:
        return found
    for k, value in enumerate(values):
        if value.operation in _STEPS and value.dtype == _WIDE and not found.isdisjoint(_numbers(program, k)):
            found.add(k)
    users = _users(program)
    while True:
        right = {k for k in found if _is_right(program, k, found, users)}
        if right == found:
            return found
        found = right


def _is_rounded(program: LoopProgram, value: Value) -> bool:
    """Whether it is a coordinate, computed from nothing that is read, as an integer."""
    if value.operation != "to_dtype" or value.dtype != _WIDE or program.values[value.operands[0]].dtype != "float32":
        return False
    stack = [*value.operands]
    while stack:
        each = program.values[stack.pop()]
        if isinstance(each.attribute, Load | Reduction | Scan):
            return False
        stack += each.operands
    return bool(value.axes)


def _magnitude(program: LoopProgram, position: int) -> float:
    """How far from 0 the value at `position` is at most, but for rounding errors; infinity if that is not known."""
    value = program.values[position]
    if isinstance(value.attribute, Number):
        return abs(float(value.attribute.value))
    if value.operation == "index" and isinstance(value.attribute, sympy.Expr):
        found = magnitude(value.attribute, program)
        return math.inf if found is None else found
    if value.operation not in _BOUNDED:
        return math.inf
    return _BOUNDED[value.operation](_magnitude(program, operand) for operand in value.operands)


def _is_right(program: LoopProgram, position: int, places: set[int], users: dict[int, list[int]]) -> bool:
    value = program.values[position]
    if value.operation in _STEPS and not all(
        _is_narrow(program, k, places, users) for k in _numbers(program, position)
    ):
        return False
    return all(_takes(program, user, places, users) for user in users[position]) and -1 not in users[position]


def _takes(program: LoopProgram, user: int, places: set[int], users: dict[int, list[int]]) -> bool:
    """Whether the value at `user` may have an int32 in place of an int64."""
    value = program.values[user]
    if value.operation in COMPARISONS:
        return all(_is_narrow(program, operand, places, users) for operand in value.operands)
    return user in places or value.operation in ("to_dtype", "indirect")


def _is_narrow(program: LoopProgram, position: int, places: set[int], users: dict[int, list[int]]) -> bool:
    """Whether it is a place, or a size or a number with which nothing but places is computed and compared."""
    value = program.values[position]
    if position in places:
        return True
    if value.dtype != _WIDE or value.operands or -1 in users[position]:
        return False
    for user in users[position]:
        other = program.values[user]
        compared = other.operation in COMPARISONS and not places.isdisjoint(other.operands)
        if not (user in places or compared or other.operation == "to_dtype"):
            return False
    if isinstance(value.attribute, Number):
        return abs(int(value.attribute.value)) < 1 << 31
    constant, rest = value.attribute.as_coeff_Add() if isinstance(value.attribute, sympy.Expr) else (0, None)
    return isinstance(rest, SizeSymbol) and bool(rest.is_nonnegative) and abs(constant) < _SMALL


def _numbers(program: LoopProgram, position: int) -> tuple[int, ...]:
    """The operands of a value that are no condition."""
    value = program.values[position]
    return value.operands[1:] if value.operation == "where" else value.operands


def _compared(program: LoopProgram, places: set[int]) -> set[int]:
    return {
        k
        for k, value in enumerate(program.values)
        if value.operation in COMPARISONS and not places.isdisjoint(value.operands)
    }


def _users(program: LoopProgram) -> dict[int, list[int]]:
    """Who has each value as an operand; -1 is a store or a check."""
    found: dict[int, list[int]] = {k: [] for k in range(len(program.values))}
    for k, value in enumerate(program.values):
        for operand in value.operands:
            found[operand].append(k)
    for store in program.stores:
        found[store.value].append(-1)
    for check in program.checks:
        found[check.condition].append(-1)
    return found
