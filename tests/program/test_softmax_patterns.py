"""Which exponentials and sums belong to a softmax."""

from __future__ import annotations

import pytest

from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Reduction, Store, Value
from halide_backend.program.softmax import exponentials_of_lines, sums_of_exponentials

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
