"""SiLU beside the sigmoid of the same x: one exponential for both."""

from __future__ import annotations

from dataclasses import replace

from halide_backend.program.loop_program import LoopProgram, Number, Value
from halide_backend.program.precision import narrow
from halide_backend.program.uses import users_of


def with_shared_sigmoids(program: LoopProgram) -> LoopProgram:
    """`program` with x * sigmoid(x) for torch's x / (1 + exp(-x)), wherever sigmoid(x) is one of its values.

    The derivative of a product with SiLU, as in SwiGLU, needs both. The product is the more accurate of the two: where
    exp(-x) is infinite, it is not 0 yet. A sigmoid that comes later takes the place of 1 + exp(-x).
    """
    sigmoids = {
        narrow(program, value.operands[0]): k for k, value in enumerate(program.values) if value.operation == "sigmoid"
    }
    if not sigmoids:
        return program
    values, users, moved = list(program.values), users_of(program), dict[int, int]()
    for k, value in enumerate(program.values):
        x = operand_of_silu(program, value)
        sigmoid = sigmoids.get(narrow(program, x)) if x is not None else None
        if x is None or sigmoid is None:
            continue
        divisor = value.operands[1]
        if sigmoid > k and sigmoid not in moved and users[divisor] == [k]:
            values[divisor] = replace(program.values[sigmoid], operands=(x,))
            moved[sigmoid] = divisor
        if (place := moved.get(sigmoid, sigmoid)) < k:
            values[k] = replace(value, operation="mul", operands=(x, place))
    values = [replace(value, operands=tuple(moved.get(o, o) for o in value.operands)) for value in values]
    stores = tuple(replace(store, value=moved.get(store.value, store.value)) for store in program.stores)
    return replace(program, values=tuple(values), stores=stores)


def operand_of_silu(program: LoopProgram, value: Value) -> int | None:
    """The x of which `value` is x / (1 + exp(-x)), if it is that."""
    if value.operation != "truediv":
        return None
    x, divisor = value.operands
    return x if operand_of_logistic(program, divisor) == x else None


def operand_of_logistic(program: LoopProgram, position: int) -> int | None:
    """The x of which the value at `position` is 1 + exp(-x), the reciprocal of sigmoid(x), if it is that."""
    total = program.values[position]
    if total.operation != "add":
        return None
    for one, exponential in (total.operands, total.operands[::-1]):
        number, power = program.values[one].attribute, program.values[exponential]
        if isinstance(number, Number) and number.value == 1 and power.operation == "exp":
            negative = program.values[power.operands[0]]
            if negative.operation == "neg":
                return negative.operands[0]
    return None
