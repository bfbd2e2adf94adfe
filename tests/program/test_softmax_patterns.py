"""Which exponentials and sums belong to a softmax."""

from __future__ import annotations

import math

import pytest

from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Number, Reduction, Store, Value
from halide_backend.program.softmax import exponentials_of_lines, sums_of_exponentials, with_masked_rows

ROWS, COLUMNS = Axis("x0", 8, 8), Axis("x1", 16, 16)


def program(kind: str, summed: Axis) -> LoopProgram:
    """Sums along `summed` of exp(x - m), m what `kind` makes of each row."""
    values: list[Value] = []
    parts: list[tuple[str, tuple[int, ...], object]] = [
        ("load", (), Load("in_ptr0", 16 * ROWS.symbol + COLUMNS.symbol)),
        ("reduction", (0,), Reduction(kind, (COLUMNS,))),
        ("sub", (0, 1), None),
        ("exp", (2,), None),
        ("reduction", (3,), Reduction("sum", (summed,))),
    ]
    for operation, operands, attribute in parts:
        values.append(Value.of(operation, "float32", operands, attribute, values))
    (kept,) = {ROWS, COLUMNS} - {summed}
    buffers = Buffer("in_ptr0", "float32", 128, 0), Buffer("out_ptr0", "float32", kept.hint, 1)
    store = Store("out_ptr0", kept.symbol, 4, Nest((kept,)))
    return LoopProgram((buffers[0],), (), (buffers[1],), tuple(values), (store,), (), (kept,))


@pytest.mark.parametrize(
    ("kind", "summed", "exponentials", "sums"),
    [("max", COLUMNS, {3}, {4}), ("max", ROWS, {3}, set()), ("min", COLUMNS, set(), set())],
    ids=["a softmax", "sums of columns", "not the largest"],
)
def test_patterns(kind: str, summed: Axis, exponentials: set[int], sums: set[int]) -> None:
    """Only along the line whose largest element is taken away one exponential is 1."""
    found = program(kind, summed)
    assert exponentials_of_lines(found) == exponentials
    assert sums_of_exponentials(found) == sums


@pytest.mark.parametrize("first", ["the maximum", "the comparison"])
def test_a_maximum_says_whether_its_line_is_masked(first: str) -> None:
    """Whichever comes first: what needs the maximum before elements are compared, as in training steps, keeps it."""
    values: list[Value] = []

    def add(operation: str, operands: tuple[int, ...] = (), attribute: object = None, dtype: str = "float32") -> int:
        values.append(Value.of(operation, dtype, operands, attribute, values))
        return len(values) - 1

    def unmasked() -> int:
        equal = add("eq", (x, infinity), dtype="bool")
        unequal = add("logical_not", (equal,), dtype="bool")
        return add("reduction", (unequal,), Reduction("any", (COLUMNS,)), "bool")

    def exponential() -> int:
        maximum = add("reduction", (x,), Reduction("max", (COLUMNS,)))
        return add("exp", (add("sub", (x, maximum)),))

    x = add("load", (), Load("in_ptr0", 16 * ROWS.symbol + COLUMNS.symbol))
    infinity = add("constant", attribute=Number.of(-math.inf))
    if first == "the maximum":
        exponent, kept = exponential(), unmasked()
    else:
        kept, exponent = unmasked(), exponential()
    result = add("where", (kept, exponent, x))
    buffers = Buffer("in_ptr0", "float32", 128, 0), Buffer("out_ptr0", "float32", 128, 1)
    store = Store("out_ptr0", 16 * ROWS.symbol + COLUMNS.symbol, result, Nest((ROWS, COLUMNS)))
    found = with_masked_rows(LoopProgram((buffers[0],), (), (buffers[1],), tuple(values), (store,), (), (ROWS,)))
    taken = found.values[found.stores[0].value]
    kept, exponent, x = taken.operands
    is_masked = found.values[found.values[kept].operands[0]]
    sub = found.values[found.values[exponent].operands[0]]
    assert found.values[kept].operation == "logical_not" and is_masked.operation == "eq"
    assert is_masked.operands[0] == sub.operands[1] and sub.operands[0] == x
    (maximum,) = (each for each in found.values if isinstance(each.attribute, Reduction))
    assert found.values[is_masked.operands[0]] is maximum and maximum.attribute == Reduction("max", (COLUMNS,))
