"""Maxima and minima in indices and conditions that are the same one of two at every step are that one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
import sympy
import torch
import torch.nn.functional as F
from sized_graph import M, N, sized_graph
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv, Max, Min

import halide_backend
from halide_backend.capture.conditions import narrowed, settled
from halide_backend.inspection.compiled import compile_for
from halide_backend.kernel_records.journal import journal
from halide_backend.program.index import AxisSymbol
from halide_backend.program.loop_program import Extent

X, Y = map(AxisSymbol, ("x0", "x1"))

INDICES = [
    # The last window that an element is in is no further than that of its row, if all of these are whole.
    (Min(FloorDiv(X, 2), Min(N, FloorDiv(X, 2) + 1) - 1), {X: 2 * N}, FloorDiv(X, 2)),
    (Min(FloorDiv(X, 2), Min(N, FloorDiv(X, 2) + 1) - 1), {X: M}, Min(N, FloorDiv(X, 2) + 1) - 1),
    (Min(N, 3 * X + 3) - 3 * X, {X: FloorDiv(N, 3)}, sympy.Integer(3)),
    (Min(N, 3 * X + 3) - 3 * X, {X: FloorDiv(N + 2, 3)}, None),
    (Max(0, X - N + 1), {X: N}, sympy.Integer(0)),
    (Max(0, X - N + 2), {X: N}, None),
    (Max(0, FloorDiv(X, 3) - N + 1), {X: 3 * N}, sympy.Integer(0)),
    (Max(0, FloorDiv(X, 3) - N + 1), {X: 3 * N + 1}, None),
    # A size that may be 0 is left to those who know which loops there are.
    (X * Max(1, N), {X: 3}, None),
]


@pytest.fixture
def sizes() -> Iterator[None]:
    with sized_graph():
        yield


def value(index: sympy.Expr, extents: dict[sympy.Symbol, Extent]) -> Iterator[sympy.Expr]:
    """What it is at each step, for several sizes."""
    for n, m in itertools.product(range(2, 7), repeat=2):
        numbers = {N: n, M: m}
        counts = [int(sympy.sympify(each).subs(numbers).replace(FloorDiv, int_div)) for each in extents.values()]
        for point in itertools.product(*map(range, counts)):
            yield index.subs({**numbers, **dict(zip(extents, point, strict=True))}).replace(FloorDiv, int_div)


def int_div(whole: sympy.Expr, part: sympy.Expr) -> sympy.Expr:
    return whole // part


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize(("index", "extents", "expected"), INDICES, ids=str)
def test_indices(index: sympy.Expr, extents: dict[sympy.Symbol, Extent], expected: sympy.Expr | None) -> None:
    found = settled(index, extents)
    assert found == (index if expected is None else expected)
    assert list(value(found, extents)) == list(value(index, extents))


COMPARISONS = [
    ("lt", FloorDiv(X, 2), Min(N, FloorDiv(X, 2) + 1), {X: M}, (FloorDiv(X, 2), N)),
    ("gt", Min(N, X + 1), X, {X: M}, (N, X)),
    ("ge", Y, Max(0, X - N), {X: M, Y: N}, (Y, X - N)),
    ("le", Max(X - N, Y), X, {X: M, Y: N}, (Y, X)),
    ("ge", X - 1, sympy.Integer(0), {X: N}, None),
    ("eq", X, Min(N, X + 1), {X: M}, None),
    ("lt", X, Min(N, M), {X: M}, (X, N)),
]


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize(("operation", "left", "right", "extents", "expected"), COMPARISONS, ids=str)
def test_comparisons(
    operation: str,
    left: sympy.Expr,
    right: sympy.Expr,
    extents: dict[sympy.Symbol, Extent],
    expected: tuple[sympy.Expr, sympy.Expr] | None,
) -> None:
    found = narrowed(operation, left, right, extents)
    assert found == (expected or (left, right))
    holds = {"lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge, "eq": sympy.Eq}[operation]
    before, after = ([value(side, extents) for side in sides] for sides in ((left, right), found))
    assert [holds(*sides) for sides in zip(*before)] == [holds(*sides) for sides in zip(*after)]


def gradient(pool: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, g: torch.func.vjp(pool, x)[1](g)[0]


POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "2 x 2": lambda x: F.avg_pool2d(x, 2),
    "3 x 3": lambda x: F.avg_pool2d(x, 3),
    "3 x 3, stride 2": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "largest of 2 x 2": lambda x: F.max_pool2d(x, 2),
}


@pytest.mark.parametrize("pool", POOLS.values(), ids=POOLS)
@pytest.mark.parametrize("target", ["", "avx2"])
def test_gradients_of_windows_for_all_sizes(pool: Callable[[Tensor], Tensor], target: str) -> None:
    """One kernel, also where the last row and column are in no window, and there are fewer than a vector."""
    options = {"halide_backend.target": target} if target else {}
    compiled = compile_for("halide_backend", gradient(pool), dynamic=True, options=options)
    for shape in ((2, 3, 150, 262), (2, 3, 151, 263), (3, 2, 38, 41), (2, 3, 5, 4), (1, 2, 3, 3)):
        x = torch.randn(shape)
        g = torch.randn_like(pool(x))
        torch.testing.assert_close(compiled.call(x, g), gradient(pool)(x, g))
    compiled.check_code()
    assert not halide_backend.stats()["delegated_kernels"]


def test_windows_without_a_rest_have_no_limits() -> None:
    """Of even sizes each element is in a window: neither its place nor whether it is in one has to be found out."""
    journal.reset()
    x, g = torch.randn(2, 3, 40, 42), torch.randn(2, 3, 20, 21)
    compile_for("halide_backend", gradient(POOLS["2 x 2"])).call(x, g)
    (record,) = journal.records()
    assert "hl.min(" not in record.text and "ops.where(" not in record.text
