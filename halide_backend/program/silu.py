"""SiLU beside the sigmoid of the same x: one exponential for both."""

from __future__ import annotations

from dataclasses import replace

from halide_backend.program.loop_program import LoopProgram, Number, Value


def with_shared_sigmoids(program: LoopProgram) -> LoopProgram:
    """`program` with x * sigmoid(x) for torch's x / (1 + exp(-x)), wherever sigmoid(x) is one of its values.

    The derivative of a product with SiLU, as in SwiGLU, needs both. The product is the more accurate of the two: where
    exp(-x) is infinite, it is not 0 yet.
    """
    sigmoids = {
        _narrow(program, value.operands[0]): k for k, value in enumerate(program.values) if value.operation == "sigmoid"
    }
    values = []
    for k, value in enumerate(program.values):
        x = operand_of_silu(program, value)
        if x is not None and (sigmoid := sigmoids.get(_narrow(program, x), k)) < k:
            value = replace(value, operation="mul", operands=(x, sigmoid))
        values.append(value)
    return replace(program, values=tuple(values)) if sigmoids else program


def _narrow(program: LoopProgram, position: int) -> int:
    """What is converted to the value at `position`, if that changes nothing: 16 bits are computed with as 32."""
    value = program.values[position]
    if value.operation == "to_dtype" and value.dtype == "float32":
        (operand,) = value.operands
        if program.values[operand].dtype in ("bfloat16", "float16"):
            return operand
    return position


def operand_of_silu(program: LoopProgram, value: Value) -> int | None:
    """The x of which `value` is x / (1 + exp(-x)), if it is that."""
    if value.operation != "truediv":
        return None
    x, divisor = value.operands[0], program.values[value.operands[1]]
    if divisor.operation != "add":
        return None
    for one, exponential in (divisor.operands, divisor.operands[::-1]):
        number, power = program.values[one].attribute, program.values[exponential]
        if isinstance(number, Number) and number.value == 1 and power.operation == "exp":
            negative = program.values[power.operands[0]]
            if negative.operation == "neg" and negative.operands == (x,):
                return x
    return None
