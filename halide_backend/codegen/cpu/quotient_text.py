"""Quotients by a power of two, which are products: x / 64 and x * (1 / 64) are rounded from the same number; and
divisions of integers, which are those of floating-point numbers where the divisor is none."""

from __future__ import annotations

import math

from halide_backend.program.loop_program import LoopProgram, Value
from halide_backend.program.moments import number

#: Exponents of the powers whose reciprocal any type has that quotients are computed in.
_EXPONENTS = range(-100, 101)


#: Divisions of integers.
_DIVISIONS = {"floordiv", "truncdiv", "mod", "fmod", "remainder"}


def division_text(program: LoopProgram, value: Value) -> str | None:
    """Text of `value` if it is a division of integers by what is no number, else None.

    A processor divides vectors of floating-point numbers, but one integer after another.
    """
    if value.operation not in _DIVISIONS or "int" not in value.dtype:
        return None
    if isinstance(number(program, value.operands[1]), int | float):
        return None
    operands = ", ".join(f"t{operand}" for operand in value.operands)
    return f"ops.{value.operation}({operands}, in_vectors=True)"


def product_text(program: LoopProgram, value: Value) -> str | None:
    """Text of `value` as a product if it is a quotient by a power of two, which a mean often is, else None.

    Halide takes the divisor out of all loops, where LLVM no longer knows that it is a number.
    """
    if value.operation != "truediv":
        return None
    dividend, divisor = value.operands
    found = number(program, divisor)
    if not isinstance(found, int | float) or not math.isfinite(found):
        return None
    mantissa, exponent = math.frexp(found)
    if abs(mantissa) != 0.5 or exponent not in _EXPONENTS:
        return None
    return f"t{dividend} * ops.constant({value.dtype!r}, {1 / found!r})"
