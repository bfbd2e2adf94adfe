"""Which values of columns are computed once for all rows on a CPU."""

from __future__ import annotations

import pytest

from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Reduction, Store, Value
from halide_backend.schedule.mapping.materialise import column_values

COLUMNS = Axis("x1", 40, 40)


def program(operation: str, *, rows: int = 64, along: str = "x1", reduced: bool = False) -> LoopProgram:
    """x * operation(y) for a matrix x and a vector y of its columns (or, `along` x0, of its rows); or its sum over the
    rows."""
    outer = Axis("x0", rows, rows)
    index = COLUMNS.symbol + 40 * outer.symbol
    values: list[Value] = []

    def add(operation: str, operands: tuple[int, ...] = (), attribute: object = None) -> int:
        values.append(Value.of(operation, "float32", operands, attribute, values))
        return len(values) - 1

    vector = add("load", (), Load("in_ptr1", (COLUMNS if along == "x1" else outer).symbol))
    matrix = add("load", (), Load("in_ptr0", index))
    product = add("mul", (matrix, add(operation, (vector,))))
    nest = Nest((outer, COLUMNS))
    if reduced:
        product = add("reduction", (product,), Reduction("sum", (outer,), None))
        index, nest = COLUMNS.symbol, Nest((COLUMNS,))
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", 40 * rows, 0), Buffer("in_ptr1", "float32", max(40, rows), 1)),
        sizes=(),
        outputs=(Buffer("out_ptr0", "float32", 40 if reduced else 40 * rows, 2),),
        values=tuple(values),
        stores=(Store("out_ptr0", index, product, nest, None),),
        checks=(),
        outer=(COLUMNS,) if reduced else (outer, COLUMNS),
    )


@pytest.mark.parametrize("operation", ["rsqrt", "exp", "reciprocal"])
def test_divisions_and_functions_are(operation: str) -> None:
    assert column_values(program(operation)) == {2}


@pytest.mark.parametrize(
    "other",
    [
        program("neg"),  # cheaper than the load of what is stored
        program("rsqrt", rows=4),  # few rows
        program("rsqrt", along="x0"),  # of a row: computed around the loop over its columns
        program("rsqrt", reduced=True),  # the loop over rows is the inner one
    ],
    ids=["negative", "few rows", "row", "sum"],
)
def test_others_are_not(other: LoopProgram) -> None:
    assert column_values(other) == frozenset()
