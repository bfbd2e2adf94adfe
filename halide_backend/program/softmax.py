"""Softmax: exponentials of a line less its maximum, of which one is 1, and what they add up to."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.program.loop_program import LoopProgram, Number, Reduction, Value
from halide_backend.program.precision import narrow
from halide_backend.program.short_reductions import without_unused
from halide_backend.program.uses import users_of


def with_masked_rows(program: LoopProgram) -> LoopProgram:
    """`program` that asks of the maximum of a line whether all of it is -inf, not of each element: so a softmax finds
    rows that are masked as a whole (torch's `_safe_softmax`). Of a line with NaN both say no."""
    maxima = {
        (narrow(program, value.operands[0]), value.attribute.axes): position
        for position, value in enumerate(program.values)
        if isinstance(value.attribute, Reduction) and value.attribute.kind == "max"
    }
    values, users, moved = list(program.values), users_of(program), dict[int, int]()
    asked = False
    for position, value in enumerate(program.values):
        if not isinstance(value.attribute, Reduction) or value.attribute.kind != "any":
            continue
        if (found := _compared_with_infinity(program, value.operands[0], users)) is None:
            continue
        unequal, equal = found
        x, infinity = program.values[equal].operands
        maximum = maxima.get((narrow(program, x), value.attribute.axes))
        if maximum is None or maximum in moved:
            continue
        if maximum > equal:
            # It takes the place of the comparison of each element, to be there before it is asked.
            values[equal], moved[maximum] = replace(program.values[maximum], operands=(x,)), equal
        values[unequal] = replace(program.values[equal], operands=(min(equal, maximum), infinity))
        values[position] = replace(program.values[unequal], operands=(unequal,))
        asked = True
    if not asked:
        return program
    taken = (replace(value, operands=tuple(moved.get(o, o) for o in value.operands)) for value in values)
    stores = (replace(store, value=moved.get(store.value, store.value)) for store in program.stores)
    return without_unused(replace(program, values=tuple(taken), stores=tuple(stores)))


def _compared_with_infinity(program: LoopProgram, position: int, users: list[list[int]]) -> tuple[int, int] | None:
    """The positions of `not equal` and of `equal`, if the value says whether something is not -inf, and is all that
    needs either."""
    while program.values[position].operation == "to_dtype":
        (position,) = program.values[position].operands
    unequal = program.values[position]
    if unequal.operation != "logical_not" or len(users[position]) != 1:
        return None
    (equal,) = unequal.operands
    compared = program.values[equal]
    if compared.operation != "eq" or users[equal] != [position]:
        return None
    number = program.values[compared.operands[1]].attribute
    return (position, equal) if isinstance(number, Number) and number.value == -math.inf else None


def exponentials_of_lines(program: LoopProgram) -> frozenset[int]:
    """Positions of exp(x - m) of float32, m the largest x of a line: between 0 and 1, or NaN."""
    return frozenset(k for k, value in enumerate(program.values) if _maximum(program, value) is not None)


def sums_of_exponentials(program: LoopProgram) -> frozenset[int]:
    """Positions of sums of these along their lines: 1 or more, as one of them is 1, or NaN."""
    return frozenset(k for k, value in enumerate(program.values) if _sums_exponentials(program, value))


def _sums_exponentials(program: LoopProgram, value: Value) -> bool:
    summed = value.attribute
    if not isinstance(summed, Reduction) or summed.kind != "sum" or value.dtype != "float32":
        return False
    maximum = _maximum(program, program.values[value.operands[0]])
    return maximum is not None and {axis.name for axis in maximum.axes} == {axis.name for axis in summed.axes}


def _maximum(program: LoopProgram, value: Value) -> Reduction | None:
    """The maximum of which `value` is exp(x - m), if it is that."""
    if value.operation != "exp" or value.dtype != "float32":
        return None
    difference = program.values[value.operands[0]]
    if difference.operation != "sub":
        return None
    x, m = difference.operands
    found = program.values[m]
    if not isinstance(found.attribute, Reduction) or found.attribute.kind != "max":
        return None
    return found.attribute if narrow(program, found.operands[0]) == narrow(program, x) else None
