"""A mean and the sum of the squared deviations from it as reductions of one pass over memory.

A variance is captured as two sums, of which the second needs the first: values that no thread holds are read twice.
The two reductions here, of kinds "mean" and "squared_deviations", are what one walk along the values can find: of
each chunk of them both are exact but for rounding, and Chan's formula combines what is known of two chunks.
"""

from __future__ import annotations

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
        found = _variance(program, value)
        if found is None:
            continue
        x, total, mean = found
        axes = _reduction(value).axes
        values[total] = replace(values[total], attribute=Reduction(MOMENTS[1], axes))
        values[position] = replace(value, operands=(x,), attribute=Reduction(MOMENTS[0], axes))
        means[mean] = total
    if not means:
        return program
    return replace(
        program,
        values=tuple(replace(v, operands=tuple(means.get(o, o) for o in v.operands)) for v in values),
        stores=tuple(replace(store, value=means.get(store.value, store.value)) for store in program.stores),
    )


def _variance(program: LoopProgram, squares: Value) -> tuple[int, int, int] | None:
    """Positions of the values whose squared deviations from their mean `squares` sums up, of their sum and of their
    mean; None if it is no such sum."""
    if not _is_sum(squares):
        return None
    product = program.values[squares.operands[0]]
    # A variance that is written as two sums has a square, Welford's algorithm is captured as a product.
    if product.operation != "square" and (product.operation != "mul" or product.operands[0] != product.operands[1]):
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
    uses = sum(total in value.operands for value in program.values)
    alone = uses == 1 and all(store.value != total for store in program.stores)
    return (x, total, mean) if same and alone and number(program, count) == points else None


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
