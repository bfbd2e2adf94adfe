"""Conversions to bfloat16 of what is a bfloat16 number already: nothing is rounded, and NaNs keep their bits."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from halide_backend.program.loop_program import LoopProgram, Value


def stored_text(dtype: str, value: str, *, exact: bool) -> str:
    """Text of the element of a buffer of `dtype` that holds `value`, which is `exact` if it is a bfloat16 number."""
    return f"ops.upper_half({value})" if exact and dtype == "bfloat16" else f"ops.stored({dtype!r}, {value})"


def exact_text(program: LoopProgram, value: Value, exact: AbstractSet[int]) -> str:
    """Text of a conversion of a value at one of `exact`, bfloat16 numbers, that rounds nothing; "" for all others."""
    if value.operation not in ("bitcast", "to_dtype") or value.operands[0] not in exact:
        return ""
    (operand,) = value.operands
    if value.operation == "to_dtype":
        return f"t{operand}" if value.dtype == "bfloat16" else ""
    bits = f"ops.upper_half(t{operand})"
    return f"ops.bitcast('uint16', {value.dtype!r}, {bits})" if program.values[operand].dtype == "bfloat16" else ""
