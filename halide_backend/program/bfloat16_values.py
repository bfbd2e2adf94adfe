"""Values that are bfloat16 numbers already, whatever type they are computed in: they are stored without rounding."""

from __future__ import annotations

import struct

from halide_backend.program.loop_program import Load, LoopProgram, Number, Value

#: Operations whose result is one of their operands, but for the sign.
_CHOOSING = frozenset({"abs", "maximum", "minimum", "neg", "relu"})

_FLOATS = ("bfloat16", "float32")


def bfloat16_values(program: LoopProgram) -> frozenset[int]:
    """Positions of the values whose upper 16 bits as a float32 are all that there is of them."""
    found: set[int] = set()
    for position, value in enumerate(program.values):
        if value.dtype in _FLOATS and _is_narrow(program, value, found):
            found.add(position)
    return frozenset(found)


def _is_narrow(program: LoopProgram, value: Value, found: set[int]) -> bool:
    if isinstance(value.attribute, Load):
        return value.dtype == "bfloat16"
    if isinstance(value.attribute, Number):
        return struct.pack("<f", value.attribute.value)[:2] == bytes(2) if _fits(value.attribute) else False
    if value.operation == "to_dtype":
        (operand,) = value.operands
        return value.dtype == "bfloat16" or operand in found
    if value.operation == "where":
        return found.issuperset(value.operands[1:])
    return value.operation in _CHOOSING and found.issuperset(value.operands)


def _fits(number: Number) -> bool:
    """Whether it can be written as a float32, rounded if need be; NaN and infinities are bfloat16 numbers as well."""
    return abs(number.value) < 2.0**127 or number.value in (float("inf"), float("-inf"))
