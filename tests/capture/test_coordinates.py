"""Coordinates of masked loads: they are those of the element, and in range wherever the mask is true."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import sympy
from sized_graph import M, N, sized_graph
from torch.utils._sympy.functions import FloorDiv

from halide_backend.capture.conditions import Bound
from halide_backend.capture.coordinates import beside_a_mask, coordinates
from halide_backend.program.index import AxisSymbol, ValueSymbol
from halide_backend.program.loop_program import Coordinate, Extent

X, Y, Z = map(AxisSymbol, ("x0", "x1", "x2"))


@pytest.fixture(autouse=True)
def sizes() -> Iterator[None]:
    with sized_graph():
        yield


def within(index: sympy.Expr, size: Extent) -> tuple[Bound, Bound]:
    """What a mask says that compares with both ends of a dimension, as it is written for numbers and for sizes."""
    if isinstance(size, int):
        return Bound(index, lower=0), Bound(index, upper=size)
    return Bound(index, lower=0), Bound(index - size, upper=0)


def test_a_padded_load() -> None:
    bounds = (*within(X - 1, 10), *within(Y - 2, 37))
    found = coordinates(37 * (X - 1) + Y - 2, (10, 37), (37, 1), {X: 12, Y: 42}, bounds)
    assert found == (Coordinate(X - 1, 10, 37), Coordinate(Y - 2, 37, 1))


def test_no_coordinates_without_proof() -> None:
    # The mask says nothing of the columns: clamping them one by one could change an address that is in range.
    for n in (37, N):
        assert coordinates(n * (X - 1) + Y - 2, (10, n), (n, 1), {X: 12, Y: n + 5}, within(X - 1, 10)) == ()


def test_no_coordinates_of_nothing() -> None:
    """There is no element that an index could be clamped to; an extent of 0 says that none is needed."""
    assert coordinates(X - 1, (0,), (1,), {X: 3}, within(X - 1, 0)) == ()
    assert coordinates(N * Y + X - 1, (N, 0), (N, 1), {Y: N, X: 3}, within(X - 1, 0)) == ()


def test_rows_that_are_counted_by_two_loops_begin_where_the_mask_does() -> None:
    """One loop over images and channels, rows in blocks of 16 from row 224 on, columns from 208 on: without the bounds
    14 blocks of rows could as well be 14 images, and 192 columns two rows."""
    column, row = AxisSymbol("x3"), 16 * Y + Z
    extents = {X: 12, Y: 16, Z: 16, column: 256}
    bounds = (Bound(row, lower=224), Bound(row, upper=240), Bound(column, lower=208))
    index = sympy.expand(1536 * X + 96 * (row - 224) + column - 192)
    found = coordinates(index, (2, 6, 16, 96), (9216, 1536, 96, 1), extents, bounds)
    assert found == (Coordinate(X, 12, 1536), Coordinate(row - 224, 16, 96), Coordinate(column - 192, 96, 1))
    # The first rows alone are no proof that there are no more.
    assert coordinates(index, (2, 6, 16, 96), (9216, 1536, 96, 1), extents, (bounds[0], bounds[2])) == ()


def test_a_mask_of_quotients_counts_no_rows() -> None:
    bounds = (Bound(FloorDiv(X, 4), lower=5), Bound(FloorDiv(X, 4), upper=6))
    assert coordinates(37 * X + Y - 740, (4, 37), (37, 1), {X: 40, Y: 37}, bounds) == ()


def test_a_line_beside_a_mask_is_not_clamped() -> None:
    """A mask of the rows X < 31, whose next row is read: all of it, at each step of the other loops."""
    extents = {X: 32, Y: 512, Z: 16}
    index = 32 * X + 1024 * Y + Z + 48
    clamped, line = beside_a_mask(index, 524_288, extents, {"x0"})
    assert (clamped.index, clamped.stride) == (32 * X + 48, 1)
    assert line == Coordinate(1024 * Y + Z, 0, 1)
    last = 1024 * 511 + 15
    assert clamped.extent + last == 524_288  # the last element of the buffer, and no other one beyond it


def test_no_line_that_lies_along_the_mask() -> None:
    extents: dict[sympy.Symbol, Extent] = {X: 32, Y: 512, Z: 16}
    for axes in ({"x2"}, {"x0", "x1", "x2"}):
        assert beside_a_mask(512 * X + 16 * Y + Z - 3, 16_384, extents, axes) == ()
    looked_up = ValueSymbol.of(3)
    assert beside_a_mask(512 * looked_up + Z, 16_384, {**extents, looked_up: 32}, {"x0"}) == ()
    # Nothing is in range at all steps of a line that is longer than the buffer.
    assert beside_a_mask(512 * X + 16 * Y + Z, 5_000, extents, {"x0"}) == ()


CASES = {
    "rows and columns": (
        N * M * X + M * (Y - 1) + Z + 1,
        (5, N, M),
        {X: 5, Y: N + 2, Z: M},
        (*within(Y - 1, N), *within(Z + 1, M)),
        (Coordinate(X, 0, N * M), Coordinate(Y - 1, N, M), Coordinate(Z + 1, M, 1)),
    ),
    "channels last": (
        N * N * M * X + N * M * (Y - 1) + M * (X - 2) + Z,
        (N, N, N, M),
        {X: N, Y: N, Z: M},
        (*within(Y - 1, N), *within(X - 2, N)),
        (Coordinate(X, 0, N * N * M), Coordinate(Y - 1, N, N * M), Coordinate(X - 2, N, M), Coordinate(Z, 0, 1)),
    ),
    "strides that are sums": (
        (N + 4) * (N + 4) * X + (N + 4) * (Y + 3) + Z - 2,
        (5, N + 4, N + 4),
        {X: 5, Y: N + 4, Z: N + 4},
        (*within(Y + 3, N + 4), *within(Z - 2, N + 4)),
        (Coordinate(X, 0, (N + 4) ** 2), Coordinate(Y + 3, N + 4, N + 4), Coordinate(Z - 2, N + 4, 1)),
    ),
    "every second": (
        M * (2 * Y - 1) + 2 * Z,
        (N, M),
        {Y: N, Z: M},
        (*within(2 * Y - 1, N), *within(2 * Z, M)),
        (Coordinate(2 * Y - 1, N, M), Coordinate(2 * Z, M, 1)),
    ),
    "images and channels in one loop": (
        N * N * X + N * (Y - 1) + Z,
        (M, 3, N, N),
        {X: 3 * M, Y: N + 1, Z: N},
        within(Y - 1, N),
        (Coordinate(X, 0, N * N), Coordinate(Y - 1, N, N), Coordinate(Z, 0, 1)),
    ),
    "the end of the row above": (
        N * N * X + N * Y + Z - 2,
        (5, N, N),
        {X: 5, Y: N + 2, Z: N + 4},
        (*within(Y - 1, N), Bound(Z, upper=2)),
        (Coordinate(X, 0, N * N), Coordinate(Y - 1, N, N), Coordinate(N + Z - 2, N, 1)),
    ),
    "the beginning of the row below": (
        N * N * X + N * Y + Z + 1,
        (5, N, N),
        {X: 5, Y: N - 1, Z: N + 1},
        (Bound(Z - N + 1, lower=0),),
        (Coordinate(X, 0, N * N), Coordinate(Y + 1, 0, N), Coordinate(Z - N + 1, N, 1)),
    ),
    "the last rows": (
        2 * M * X + M * (Y - N + 2) + Z,
        (5, 2, M),
        {X: 5, Y: N, Z: M},
        (Bound(Y - N + 2, lower=0),),
        (Coordinate(X, 0, 2 * M), Coordinate(Y - N + 2, 2, M), Coordinate(Z, 0, 1)),
    ),
    "a part": (
        12 * X + 4 * (Y - 2) + Z - 1,
        (N, 3, 4),
        {X: N, Y: M + 3, Z: M + 4},
        (Bound(Y, lower=2), Bound(Y, upper=5), Bound(Z, lower=1), Bound(Z, upper=5)),
        (Coordinate(X, 0, 12), Coordinate(Y - 2, 3, 4), Coordinate(Z - 1, 4, 1)),
    ),
    "a corner": (
        2 * (M + 3) * X + (M + 3) * (Y - N + 2) + Z - M + 4,
        (5, 2, M + 3),
        {X: 5, Y: N, Z: M},
        (Bound(Y - N + 2, lower=0), Bound(Z - M + 1, lower=0)),
        (Coordinate(X, 0, 2 * (M + 3)), Coordinate(Y - N + 2, 2, M + 3), Coordinate(Z - M + 4, M + 3, 1)),
    ),
}


@pytest.mark.parametrize(("index", "dims", "extents", "bounds", "expected"), CASES.values(), ids=CASES)
def test_where_strides_are_sizes(
    index: sympy.Expr,
    dims: tuple[Extent, ...],
    extents: dict[sympy.Symbol, Extent],
    bounds: tuple[Bound, ...],
    expected: tuple[Coordinate, ...],
) -> None:
    strides = [sympy.expand(sympy.prod(dims[number + 1 :])) for number in range(len(dims))]
    found = coordinates(sympy.expand(index), dims, strides, extents, bounds)
    assert [(c.index, c.extent, sympy.expand(c.stride)) for c in found] == [
        (sympy.expand(c.index), c.extent, sympy.expand(c.stride)) for c in expected
    ]
    assert sympy.expand(sum(c.index * c.stride for c in found) - index) == 0
    for n, m in itertools.product((2, 3, 5), repeat=2):
        known = {N: n, M: m}
        counts = [range(int(sympy.sympify(extent).subs(known))) for extent in extents.values()]
        for point in itertools.product(*counts):
            at = known | dict(zip(extents, point))
            values = [int(c.index.subs(at)) for c in found]
            masked = all(
                (bound.lower is None or bound.expression.subs(at) >= bound.lower)
                and (bound.upper is None or bound.expression.subs(at) < bound.upper)
                for bound in bounds
            )
            # The outermost may be several dimensions.
            sizes = [sympy.prod(dims[: len(dims) - len(found) + 1]), *dims[len(dims) - len(found) + 1 :]]
            for value, coordinate, size in zip(values, found, sizes, strict=True):
                if masked or coordinate.extent == 0:
                    assert 0 <= value < sympy.sympify(size).subs(known)


def test_what_is_no_sum_of_multiples_of_the_strides() -> None:
    extents: dict[sympy.Symbol, Extent] = {Y: N, Z: M}
    assert coordinates(2 * M * Y + N * Z, (N, M), (M, 1), extents, ()) == ()
    assert coordinates(M * Y * Y + Z, (N, M), (M, 1), extents, ()) == ()
