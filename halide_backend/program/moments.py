"""A mean and the sum of the squared deviations from it as reductions of one pass over memory.

A variance is captured as two sums, of which the second needs the first: values that no thread holds are read twice.
The two reductions here, of kinds "mean" and "squared_deviations", are what one walk along the values can find: of
each chunk of them both are exact but for rounding, and Chan's formula combines what is known of two chunks. They have
one operand, or three where Inductor combines parts of a column: the mean of each part, its squared deviations and the
number of its values, which is 1 or 0 where its parts are values, of which the last ones lie beyond the end.
"""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.program.extents import product
from halide_backend.program.loop_program import Extent, LoopProgram, Number, Reduction, Value

#: The reductions of this module, in the order in which the kernel has them.
MOMENTS = ("squared_deviations", "mean")

#: Points of a column up to which a thread unrolls its whole loop: the compiler then sees that two sums read the same.
UNROLLED = 32


def with_moments(program: LoopProgram) -> LoopProgram:
    """`program` with moments in place of the sums that a variance was captured as; the mean is where its sum was.

    The numbers are those of float32, in loops of known extents."""
    if program.checks:
        return program
    values = list(program.values)
    means: dict[int, int] = {}
    for position, value in enumerate(program.values):
        found = _variance(program, value) or _combined_variance(program, value)
        if found is None:
            continue
        operands, total, mean = found
        axes = _reduction(value).axes
        values[total] = replace(values[total], operands=operands, attribute=Reduction(MOMENTS[1], axes))
        values[position] = replace(value, operands=operands, attribute=Reduction(MOMENTS[0], axes))
        means[mean] = total
    if not means:
        return program
    return replace(
        program,
        values=tuple(replace(v, operands=tuple(means.get(o, o) for o in v.operands)) for v in values),
        stores=tuple(replace(store, value=means.get(store.value, store.value)) for store in program.stores),
    )


#: The operands of a variance, and the positions of the sum that its mean is made from, and of its mean.
_Variance = tuple[tuple[int, ...], int, int]


def _variance(program: LoopProgram, squares: Value) -> _Variance | None:
    """The variance whose squared deviations from the mean `squares` sums up; None if it is no such sum."""
    if not _is_sum(squares):
        return None
    product = program.values[squares.operands[0]]
    if product.operation != "mul" or product.operands[0] != product.operands[1]:
        return None
    deviation = program.values[product.operands[0]]
    if deviation.operation != "sub":
        return None
    x, mean = deviation.operands
    quotient = program.values[mean]
    if quotient.operation != "truediv":
        return None
    total, count = quotient.operands
    sum_of_x = program.values[total]
    points = _points(squares)
    if points is None or points <= UNROLLED:
        return None
    same = _is_sum(sum_of_x) and sum_of_x.operands == (x,) and _reduction(sum_of_x).axes == _reduction(squares).axes
    whole = same and number(program, count) == points
    return ((x,), total, mean) if whole and _is_alone(program, total) else None


def _combined_variance(program: LoopProgram, squares: Value) -> _Variance | None:
    """The same of parts: `squares` sums up what each has of its own, and the weighted square of its deviation."""
    if not (_is_sum(squares) and _is_long(squares)):
        return None
    spread = program.values[squares.operands[0]]
    if spread.operation != "add":
        return None
    own, between = spread.operands
    weighted = _operands(program, between, "mul")
    product = _operands(program, weighted[0], "mul") if weighted else ()
    deviation = _operands(program, product[0], "sub") if product and product[0] == product[1] else ()
    quotient = _operands(program, deviation[1], "truediv") if deviation else ()
    if not quotient:
        return None
    (part, mean), weight, (total, count) = deviation, weighted[1], quotient
    sums = program.values[total], program.values[next(iter(_operands(program, count, "maximum")), count)]
    if not all(_is_sum(each) and _reduction(each).axes == _reduction(squares).axes for each in sums):
        return None
    same = _operands(program, sums[0].operands[0], "mul") == (part, weight) and sums[1].operands == (weight,)
    # The moments stand where the sum of the means was.
    known = same and own < total
    return ((part, own, weight), total, mean) if known and _is_alone(program, total) else None


def _operands(program: LoopProgram, position: int, operation: str) -> tuple[int, ...]:
    """Those of the value at `position` if it is an `operation`, else none."""
    value = program.values[position]
    return value.operands if value.operation == operation else ()


def _is_alone(program: LoopProgram, total: int) -> bool:
    """Whether nothing but a mean needs the sum at `total`."""
    uses = sum(total in value.operands for value in program.values)
    return uses == 1 and all(store.value != total for store in program.stores)


def _is_long(value: Value) -> bool:
    """Whether a reduction is a loop of more points than are unrolled, whose number may be unknown along one axis."""
    axes = _reduction(value).axes
    known = all(isinstance(axis.extent, int) for axis in axes)
    return (known or len(axes) == 1) and math.prod(axis.hint for axis in axes) > UNROLLED


def _is_sum(value: Value) -> bool:
    return value.dtype == "float32" and isinstance(value.attribute, Reduction) and value.attribute.kind == "sum"


def _reduction(value: Value) -> Reduction:
    assert isinstance(value.attribute, Reduction)
    return value.attribute


def _points(value: Value) -> Extent | None:
    """How many values a reduction has, if that is known."""
    extents = [axis.extent for axis in _reduction(value).axes]
    return product(extents) if all(isinstance(extent, int) for extent in extents) else None


def number(program: LoopProgram, position: int) -> object:
    """The number that the value at `position` is, if it is a constant, or one that was converted."""
    value = program.values[position]
    while value.operation == "to_dtype":
        value = program.values[value.operands[0]]
    return value.attribute.value if isinstance(value.attribute, Number) else value.attribute
