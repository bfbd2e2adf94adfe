"""A dynamic row of several axes as one axis: every value and store means the same."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import sympy

from halide_backend.codegen.index_text import index_text
from halide_backend.errors import Unsupported
from halide_backend.program.access import runs_along
from halide_backend.program.flattening import flattened
from halide_backend.program.index import FloorDiv, Mod, SizeSymbol
from halide_backend.program.loop_program import (
    Axis,
    Buffer,
    Extent,
    Load,
    LoopProgram,
    Nest,
    Reduction,
    Size,
    Store,
    Value,
)

N, M = (SizeSymbol(name, nonnegative=True) for name in ("n0", "n1"))
AXES = Axis("x0", N, 5), Axis("x1", M, 7)
X0, X1 = (axis.symbol for axis in AXES)


def program(*indices: sympy.Expr, outputs: int = 2) -> LoopProgram:
    """Copies of what lies at `indices`, to `outputs` outputs whose memory has the order of the loops."""
    values = tuple(
        Value("load", "float32", (), Load("in_ptr0", index), frozenset(s.name for s in index.free_symbols & {X0, X1}))
        for index in indices
    )
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", N * M, 0),),
        sizes=(Size("n0", N), Size("n1", M)),
        outputs=tuple(Buffer(f"out_ptr{k}", "float32", N * M, k + 1) for k in range(outputs)),
        values=values,
        stores=tuple(Store(f"out_ptr{k}", M * X0 + X1, k % len(values), Nest(AXES)) for k in range(outputs)),
        checks=(),
        outer=AXES,
    )


def at(index: sympy.Expr, **places: int) -> int:
    memory = SimpleNamespace(quotient=lambda a, b: a // b, remainder=lambda a, b: a % b)
    return int(eval(index_text(index), {"n0": 5, "n1": 7, "memory": memory, **places}))


def test_indices_are_those_of_the_two_axes() -> None:
    indices = (M * X0 + X1, N * X1 + X0, X0, X1, X0 + X1)
    found = flattened(program(*indices))
    (axis,) = found.outer
    assert (axis.extent, axis.hint) == (N * M, 35)
    assert found.stores[0].index == axis.symbol
    for before, value in zip(indices, found.values):
        assert isinstance(value.attribute, Load)
        assert value.axes == {axis.name}
        for number in range(35):
            places = {"x0": number // 7, "x1": number % 7}
            assert at(value.attribute.index, **{axis.name: number}) == at(before, **places)


def test_what_runs_along_the_row_has_no_division() -> None:
    (value,) = flattened(program(M * X0 + X1)).values
    assert isinstance(value.attribute, Load)
    assert value.attribute.index == X1


def test_a_line_is_seen_behind_a_remainder() -> None:
    along, across = flattened(program(2 * M * X0 + X1, N * X1 + X0)).values
    assert isinstance(along.attribute, Load) and isinstance(across.attribute, Load)
    assert runs_along(along.attribute.index, "x1")
    assert not runs_along(across.attribute.index, "x1")


def test_known_sizes_or_one_output_that_is_no_line_need_nothing() -> None:
    static = replace(program(X0), outer=(Axis("x0", 5, 5), Axis("x1", 7, 7)))
    assert flattened(static) is static
    alone = program(X0, outputs=1)
    assert len(flattened(alone).outer) == 1
    (store,) = alone.stores
    for index in (2 * M * X0 + X1, sympy.Symbol("j0", integer=True)):
        other = replace(alone, stores=(replace(store, index=index),))
        assert flattened(other) is other


def test_one_output_may_be_a_line_in_another_order_than_that_of_the_loops() -> None:
    alone = program(X0, outputs=1)
    (store,) = alone.stores
    (axis,) = (one := flattened(replace(alone, stores=(replace(store, index=N * X1 + X0),)))).outer
    assert one.stores[0].index == axis.symbol


def test_an_output_that_is_no_line_is_refused() -> None:
    whole = program(X0)
    across = replace(whole.stores[0], index=N * X1 + X0)
    with pytest.raises(Unsupported, match="with gaps or jumps"):
        flattened(replace(whole, stores=(across, whole.stores[1])))


CHANNELS = Axis("x2", 3, 3)
X2 = CHANNELS.symbol


def reduced(
    index: sympy.Expr, *, kind: str = "sum", position: sympy.Expr | None = None, of: tuple[Axis, ...] = AXES
) -> LoopProgram:
    """A reduction over rows and columns of what lies at `index`, a number for each channel."""
    outer = (CHANNELS,)
    extent: Extent = 3 * N * M
    values = (
        Value("load", "float32", (), Load("in_ptr0", index), frozenset(s.name for s in index.free_symbols - {N, M})),
        Value("reduction", "float32", (0,), Reduction(kind, of, position), frozenset({"x2"})),
    )
    return LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", extent, 0),),
        sizes=(Size("n0", N), Size("n1", M)),
        outputs=(Buffer("out_ptr0", "float32", 3, 1),),
        values=values,
        stores=(Store("out_ptr0", X2, 1, Nest(outer, of)),),
        checks=(),
        outer=outer,
    )


def axes_of(found: LoopProgram) -> tuple[Axis, ...]:
    attribute = found.values[1].attribute
    assert isinstance(attribute, Reduction)
    return attribute.axes


@pytest.mark.parametrize("index", [N * M * X2 + M * X0 + X1, 3 * M * X0 + 3 * X1 + X2], ids=["pictures", "channels"])
def test_rows_and_columns_are_reduced_as_one(index: sympy.Expr) -> None:
    """Each load divided by a size to tell them apart: a mean of channels took 87 us on an H100, now 51."""
    found = flattened(reduced(index))
    (axis,) = axes_of(found)
    assert (axis.extent, axis.hint) == (N * M, 35)
    assert found.stores[0].nest == Nest((CHANNELS,), (axis,))
    load = found.values[0]
    assert isinstance(load.attribute, Load) and load.axes == {axis.name, "x2"}
    assert not load.attribute.index.atoms(FloorDiv, Mod)
    for number in range(35):
        places = {"x0": number // 7, "x1": number % 7}
        assert at(load.attribute.index, **{"x2": 2, axis.name: number}) == at(index, **places, x2=2)


def test_a_position_is_that_in_the_line() -> None:
    found = flattened(reduced(N * M * X2 + M * X0 + X1, kind="argmax", position=M * X0 + X1))
    (axis,) = axes_of(found)
    attribute = found.values[1].attribute
    assert isinstance(attribute, Reduction) and attribute.position == axis.symbol


@pytest.mark.parametrize(
    "program",
    [
        reduced(N * M * X2 + 2 * M * X0 + X1),
        reduced(M * X2 + X1),
        reduced(N * M * X2 + M * X0 + X1, kind="argmax", position=N * X1 + X0),
        replace(reduced(N * M * X2 + M * X0 + X1), stores=(Store("out_ptr0", X0, 0, Nest((CHANNELS, AXES[0]))),)),
    ],
    ids=["every other row", "one row", "turned positions", "a store along one of them"],
)  # fmt: skip
def test_rows_that_are_no_line_stay_apart(program: LoopProgram) -> None:
    assert axes_of(flattened(program)) == AXES
