"""Which form a division, a root or log1p takes on a GPU: before the branch of the hardware's division threads wait for
what they load."""

from __future__ import annotations

from halide_backend.program.loop_program import Load, LoopProgram, Reduction
from halide_backend.program.precision import constants, exact_values
from halide_backend.program.silu import operand_of_silu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.tiling import WARP, Tiling, TilingKind

#: What has a form without a branch, or with fewer instructions, where its last bits do not show.
_ROUGH = {"log1p": "rough_log1p", "reciprocal": "rough_reciprocal", "sqrt": "rough_sqrt"}

#: Types of codes, small integers that numbers are rounded to.
_CODES = ("int8", "uint8", "int16")

SHARED = Knob("divisions.shared", (False, True), "a quotient is made of a reciprocal that several share")


def division_forms(program: LoopProgram, tiling: Tiling, choices: Choices) -> tuple[tuple[int, str], ...]:
    """Position and form of each quotient that is not IEEE's division as it stands: "divide" (2 ulp, into elements of 16
    bits, and of SiLU, whose exponential is less exact), "divide_by_constant", "divide_by_shared" or, of what is
    rounded to a small integer, "divide_into_code" or "divide_bfloat16_into_code"; of each reciprocal, root and log1p
    into elements of 16 bits "rough_reciprocal", "rough_sqrt" or "rough_log1p".

    Raises:
        IllegalPlan: a requested form is neither True nor False.
    """
    constant, exact = constants(program), exact_values(program)
    found = []
    for position, value in enumerate(program.values):
        if value.operation in _ROUGH and position not in exact | constant:
            found.append((position, _ROUGH[value.operation]))
        if value.operation != "truediv" or position in constant:
            continue
        divisor = value.operands[1]
        if position not in exact or operand_of_silu(program, value) is not None:
            found.append((position, "divide"))
        elif divisor in constant:
            found.append((position, "divide_by_constant"))
        elif _shares(program, tiling, position, divisor, choices):
            into_code = "divide_bfloat16_into_code" if _is_bfloat16(program, value.operands[0]) else "divide_into_code"
            found.append((position, into_code if _becomes_code(program, position) else "divide_by_shared"))
    return tuple(found)


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


def _is_reduced(program: LoopProgram, position: int) -> bool:
    """Whether a reduction needs the value at `position`."""
    behind = {position}
    for number, value in enumerate(program.values[position + 1 :], position + 1):
        if not behind.isdisjoint(value.operands):
            if isinstance(value.attribute, Reduction):
                return True
            behind.add(number)
    return False
