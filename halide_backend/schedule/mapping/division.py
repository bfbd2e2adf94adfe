"""Which form a division, a root, or a function takes on a GPU: before the branch of the hardware's division
threads wait for what they load, and last bits that do not show cost instructions."""

from __future__ import annotations

import math

from halide_backend.program.loop_program import Load, LoopProgram, Number, Reduction
from halide_backend.program.precision import constants, exact_values
from halide_backend.program.silu import operand_of_silu
from halide_backend.program.softmax import exponentials_of_lines, sums_of_exponentials
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.tiling import WARP, Tiling, TilingKind

#: What has a form without a branch, or with fewer instructions, where its last bits do not show.
_INVERSE = ("acos", "acosh", "asin", "asinh", "atan", "atanh")
_SPECIAL = ("digamma", "erfc", "erfcx", "erfinv", "i0", "i0e", "i1", "i1e", "lgamma")
_LOGARITHMS = ("log", "log1p", "log2", "log10")
_HYPERBOLIC = ("cosh", "sinh")
_ROUGH = {
    name: f"rough_{name}" for name in (*_INVERSE, *_SPECIAL, *_LOGARITHMS, *_HYPERBOLIC, "reciprocal", "sqrt", "tan")
}

#: Types of codes, small integers that numbers are rounded to.
_CODES = ("int8", "uint8", "int16")

SHARED = Knob("divisions.shared", (False, True), "a quotient is made of a reciprocal that several share")


def division_forms(program: LoopProgram, tiling: Tiling, choices: Choices) -> tuple[tuple[int, str], ...]:
    """Position and form of each quotient that is not IEEE's division as it stands: "divide" (2 ulp, into elements of 16
    bits, and of SiLU, whose exponential is less exact), "divide_by_constant", "divide_by_shared" or, of what is rounded
    to a small integer, "divide_into_code" or "divide_bfloat16_into_code"; of each function in `_ROUGH` into elements of
    16 bits the rough one. What is divided into such elements by one number of a line takes "rough_divide_by_shared".
    Exponentials of a softmax are divided by "rough_divide_by_sum", which is more exact than they are, and into such
    elements they are "rough_exp".

    Raises:
        IllegalPlan: a requested form is neither True nor False.
    """
    constant, exact = constants(program), exact_values(program)
    exponentials, sums = exponentials_of_lines(program), sums_of_exponentials(program)
    found = []
    for position, value in enumerate(program.values):
        if value.operation in _ROUGH and value.dtype != "float64" and position not in exact | constant:
            found.append((position, _ROUGH[value.operation]))
        if position in exponentials - exact:
            found.append((position, "rough_exp"))
        if value.operation != "truediv" or position in constant:
            continue
        divisor = value.operands[1]
        one = divisor not in constant and _divides_line(program, tiling, position, divisor)
        if one and value.operands[0] in exponentials and divisor in sums:
            found.append((position, "rough_divide_by_sum"))
        elif one and position not in exact:
            found.append((position, "rough_divide_by_shared"))
        elif position not in exact or operand_of_silu(program, value) is not None:
            found.append((position, "divide"))
        elif divisor in constant:
            form = "divide_by_power_of_two" if _is_power_of_two(program, divisor) else "divide_by_constant"
            found.append((position, form))
        elif _shares(program, tiling, position, divisor, choices):
            into_code = "divide_bfloat16_into_code" if _is_bfloat16(program, value.operands[0]) else "divide_into_code"
            found.append((position, into_code if _becomes_code(program, position) else "divide_by_shared"))
    return tuple(found)


def _is_power_of_two(program: LoopProgram, position: int) -> bool:
    """Whether a value is a power of two whose reciprocal is a float32 as well: a product is then the quotient."""
    number = program.values[position].attribute
    if not isinstance(number, Number) or not isinstance(number.value, float) or not math.isfinite(number.value):
        return False
    mantissa, exponent = math.frexp(number.value)
    return abs(mantissa) == 0.5 and abs(exponent) < 120


def _becomes_code(program: LoopProgram, position: int) -> bool:
    """Whether a quotient is rounded, bounded and converted to a small integer, and is nothing else."""
    behind = {position}
    for number, value in enumerate(program.values[position + 1 :], position + 1):
        if behind.isdisjoint(value.operands):
            continue
        if position in value.operands and value.operation != "round":
            return False
        if value.operation in ("round", "maximum", "minimum"):
            behind.add(number)
        elif value.operation != "to_dtype" or value.dtype not in _CODES:
            return False
    sinks = {store.value for store in program.stores} | {check.condition for check in program.checks}
    return behind.isdisjoint(sinks)


def _is_bfloat16(program: LoopProgram, position: int) -> bool:
    """Whether a value is a bfloat16 number that lies in memory."""
    value = program.values[position]
    if value.operation == "to_dtype" and value.dtype == "float32":
        return _is_bfloat16(program, value.operands[0])
    return isinstance(value.attribute, Load) and value.dtype == "bfloat16"


def _shares(program: LoopProgram, tiling: Tiling, position: int, divisor: int, choices: Choices) -> bool:
    shared = _is_shared(program, tiling, position, divisor)
    if shared:
        why = "dequantising 8192 rows of 2048 bfloat16 takes 23.4 us, with branches 28.4 us"
    else:
        why = "one quotient for a divisor, or all warps divide at once: softmax of 50257 floats 132 us, else 163 us"
    return choices.flag(SHARED, shared, why, at=f"t{position}")


def _is_shared(program: LoopProgram, tiling: Tiling, position: int, divisor: int) -> bool:
    """Whether a thread divides several numbers by it, while other warps of its SM do something else, or in a loop of
    a reduction, whose loads would wait for one another at each branch.

    Without branches the assembler puts all stores at the end: dequantising 8192 rows of 2048 bfloat16 took 28.4 us,
    and takes 23.4 us; but softmax of 50257 floats, where all warps divide at once, 132 us, and would take 163 us. On
    an H200, weighted sums of 64 x 512 x 768 floats, whose weights are quotients, took 46 us, and take 39 us; a batch
    norm of 65536 x 300 floats of unknown sizes, whose mean is one, 145 and 110 us.
    """
    axes = program.values[divisor].axes
    if tiling.kind is TilingKind.REGISTERS:
        return tiling.threads <= WARP and axes.isdisjoint(tiling.inner)
    if tiling.inner and axes.isdisjoint(tiling.inner) and _is_reduced(program, position):
        return True
    return tiling.kind is not TilingKind.BLOCK and bool(tiling.chunk) and axes.isdisjoint(tiling.cuts)


def _divides_line(program: LoopProgram, tiling: Tiling, position: int, divisor: int) -> bool:
    """Whether a thread divides all that it has of a line, or of a chunk, by the value at `divisor`."""
    along = {*tiling.cuts, *tiling.inner}
    one = program.values[divisor].axes.isdisjoint(along)
    return one and not program.values[position].axes.isdisjoint(along)


def _is_reduced(program: LoopProgram, position: int) -> bool:
    """Whether a reduction needs the value at `position`."""
    behind = {position}
    for number, value in enumerate(program.values[position + 1 :], position + 1):
        if not behind.isdisjoint(value.operands):
            if isinstance(value.attribute, Reduction):
                return True
            behind.add(number)
    return False
