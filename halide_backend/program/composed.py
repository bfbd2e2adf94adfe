"""Functions of functions that a GPU computes in fewer instructions than one after another."""

from __future__ import annotations

from dataclasses import replace

from halide_backend.program.loop_program import LoopProgram, Number, Value
from halide_backend.program.silu import operand_of_logistic

#: Operations that no program is captured with: log(1 + exp(x)), and the hyperbolic tangent of it.
COMPOSED = frozenset({"log1p_of_exp", "tanh_of_softplus"})

#: From which on tanh(x) is 1 in float32.
_TANH_IS_ONE = 10.0


def composed(program: LoopProgram) -> LoopProgram:
    """`program` with operations of `COMPOSED` where they give the same values; what was in between stays where it is
    needed elsewhere."""
    values = tuple(_composed(program, value) for value in program.values)
    return program if values == program.values else replace(program, values=values)


def _composed(program: LoopProgram, value: Value) -> Value:
    if value.operation == "pow" and _is_two(program, value.operands[1]):
        # A size squared, which the host computes then; of a power Halide leaves it the parts that it takes for cheap.
        return replace(value, operation="mul", operands=value.operands[:1] * 2)
    if value.dtype != "float32":
        return value
    if value.operation == "reciprocal":
        (of,) = value.operands
        root = program.values[of]
        if root.operation == "sqrt" and root.dtype == "float32":
            return replace(value, operation="rsqrt", operands=root.operands)
        if root.dtype == "float32" and (x := operand_of_logistic(program, of)) is not None:
            # As the gradient of a SiLU is written out; its exponential is less exact than IEEE's quotient, which has a
            # branch (sums of such gradients of 334 x 32 x 56 x 56 floats 154 us on an H200, without it 103 us).
            return replace(value, operation="sigmoid", operands=(x,))
    if value.operation == "log1p":
        exponential = program.values[value.operands[0]]
        if exponential.operation == "exp" and exponential.dtype == "float32":
            return replace(value, operation="log1p_of_exp", operands=exponential.operands)
    if value.operation == "tanh" and (operand := _of_softplus(program, value.operands[0])) is not None:
        return replace(value, operation="tanh_of_softplus", operands=(operand,))
    return value


def _is_two(program: LoopProgram, position: int) -> bool:
    """Whether a value is the number 2, or that of a size's power as float64."""
    value = program.values[position]
    if value.operation == "to_dtype" and value.dtype == "float64":
        value = program.values[value.operands[0]]
    return isinstance(value.attribute, Number) and value.dtype == "int64" and value.attribute.value == 2


def _of_softplus(program: LoopProgram, position: int) -> int | None:
    """The x of torch's softplus, where(x > threshold, x, log1p(exp(x))), whose threshold is of no consequence here."""
    chosen = program.values[position]
    if chosen.operation != "where":
        return None
    above, x, other = (program.values[operand] for operand in chosen.operands)
    if above.operation != "gt" or other.operation != "log1p" or x.dtype != "float32":
        return None
    compared, threshold = above.operands[0], program.values[above.operands[1]]
    exponential = program.values[other.operands[0]]
    same = compared == chosen.operands[1] and exponential.operation == "exp" and exponential.operands == (compared,)
    number = threshold.attribute
    high = isinstance(number, Number) and float(number.value) >= _TANH_IS_ONE
    return compared if same and high else None
