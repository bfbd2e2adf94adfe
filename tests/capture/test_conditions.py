"""What is known of coordinates without their mask: conditions that always hold, and steps whose loads need no clamp."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from sized_graph import M, N, sized_graph
from torch import Tensor
from torch.utils._sympy.functions import FloorDiv, Max, Min

from halide_backend import pipeline
from halide_backend.capture.conditions import Bound, decided, steps_inside
from halide_backend.program.index import AxisSymbol
from halide_backend.program.loop_program import Extent, Steps

X, Y, Z = map(AxisSymbol, ("x0", "x1", "x2"))

Check = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def sizes() -> Iterator[None]:
    with sized_graph():
        yield


def points(extents: dict[sympy.Symbol, Extent], n: int, m: int) -> Iterator[dict[sympy.Symbol, int]]:
    """All steps of loops over `extents` for these sizes."""
    counts = [
        int(sympy.sympify(extent).subs({N: n, M: m}).replace(FloorDiv, lambda a, b: a // b))
        for extent in extents.values()
    ]
    for point in itertools.product(*map(range, counts)):
        yield {**dict(zip(extents, point, strict=True)), N: n, M: m}


CONDITIONS = [
    ("ge", X, sympy.Integer(0), {X: N}, True),
    ("lt", X, N, {X: N}, True),
    ("lt", X - 1, N, {X: N}, True),
    ("ge", X + 1, sympy.Integer(0), {X: N}, True),
    ("lt", X + 1, N, {X: N}, False),
    ("ge", X - 1, sympy.Integer(0), {X: N}, False),
    ("gt", N, X, {X: N}, True),
    ("le", X, N - 1, {X: N}, True),
    ("lt", X, M, {X: N}, False),
    ("lt", 2 * X, N, {X: FloorDiv(N + 1, 2)}, True),
    ("lt", 2 * X + 1, N, {X: FloorDiv(N + 1, 2)}, False),
    ("lt", 2 * X + 1, N, {X: FloorDiv(N, 2)}, True),
    ("lt", X, N - FloorDiv(N, 2), {X: N - FloorDiv(N, 2)}, True),
    ("lt", X, FloorDiv(N, 2) + 1, {X: N - FloorDiv(N, 2)}, False),
    ("lt", X, sympy.Integer(9), {X: 9}, True),
    ("lt", X, sympy.Integer(8), {X: 9}, False),
    ("lt", X + Y, N + M - 1, {X: N, Y: M}, True),
    ("eq", X, N, {X: N}, False),
    # The windows of pooling that an element is in, of a filter of three: the first, and how many there are.
    ("lt", Max(0, X - 1), Min(N, X + 2), {X: N}, True),
    ("lt", Max(0, X - 1) + 1, Min(N, X + 2), {X: N}, True),
    ("lt", Max(0, X - 1) + 2, Min(N, X + 2), {X: N}, False),
    ("le", Min(X, M - 1), N, {X: N}, True),
    ("le", Max(X, M - 1), N, {X: N}, False),
    ("lt", X, Max(N, M), {X: N}, True),
    ("lt", X, Min(N, M), {X: N}, False),
    ("ge", 2 * Max(X, 1) - Min(X, M), X, {X: N}, True),
]


@pytest.mark.parametrize(("operation", "left", "right", "extents", "expected"), CONDITIONS, ids=str)
def test_what_holds_at_every_step(
    operation: str, left: sympy.Expr, right: sympy.Expr, extents: dict[sympy.Symbol, Extent], expected: bool
) -> None:
    assert bool(decided(operation, left, right, extents)) == expected
    if expected:
        holds = {"lt": sympy.Lt, "le": sympy.Le, "gt": sympy.Gt, "ge": sympy.Ge}[operation]
        for n, m in itertools.product(range(2, 7), repeat=2):
            for point in points(extents, n, m):
                assert holds(*(side.subs(point).replace(FloorDiv, lambda a, b: a // b) for side in (left, right)))


MASKED = [
    ("ge", X - N, sympy.Integer(2), Bound(X - N - 2, lower=0), True),
    ("lt", X - N, sympy.Integer(2), Bound(X - N - 2, lower=0), False),
    ("lt", X + N, N + 2, Bound(X, upper=2), True),
    ("ge", X, sympy.Integer(2), Bound(X, upper=2), False),
    ("ge", X, sympy.Integer(1), Bound(X, upper=2), None),
    ("lt", X, N, Bound(X - N, upper=1), None),
    ("lt", Y, N, Bound(X - N, upper=0), None),
]


@pytest.mark.parametrize(("operation", "left", "right", "bound", "expected"), MASKED, ids=str)
def test_what_a_mask_says(
    operation: str, left: sympy.Expr, right: sympy.Expr, bound: Bound, expected: bool | None
) -> None:
    assert decided(operation, left, right, {X: N + 4, Y: N + 4}, [bound]) == expected


def test_half_an_odd_size_is_not_rounded_the_wrong_way() -> None:
    """n - n//2 steps are more than n/2."""
    assert not decided("lt", 2 * X, N, {X: N - FloorDiv(N, 2) + 1})
    assert not decided("lt", X, FloorDiv(N, 2), {X: N - FloorDiv(N, 2)})


LOADS = [
    (N * N * X + N * Y + Z + 1, M * N * N, {X: M, Y: N, Z: N}, Steps("x1", 0, N - 1)),
    (N * N * X + N * Y + Z - N, M * N * N, {X: M, Y: N, Z: N}, Steps("x1", 1, N)),
    (N * N * X + N * Y + Z - N - 1, M * N * N, {X: M, Y: N, Z: N}, Steps("x1", 2, N)),
    (N * N * X + N * Y + Z + 3 * N + 3, M * N * N, {X: M, Y: N, Z: N}, None),
    (N * X + Y - 2, M * N, {X: M, Y: N}, Steps("x1", 2, N)),
    (N * N * X + 2 * N * Y + 2 * Z - N - 1, M * N * N, {X: M, Y: FloorDiv(N + 1, 2), Z: FloorDiv(N + 1, 2)}, ...),
    (M * N * X + 3 * N * Y + N * Z - N, M * N * N, {X: N, Y: 5, Z: M}, ...),
    (9 * X + Y - 1, 9 * N, {X: N, Y: 9}, Steps("x1", 1, 9)),
    (9 * X + 3 * Y - 1, 9 * N, {X: N, Y: 3}, Steps("x1", 1, 3)),
    (9 * X + 5 * Y - 5, 9 * N, {X: N, Y: 2}, None),
    (N * X + Y - 1, N * M - 1, {X: M, Y: N}, ...),
    # Rows, or what is in them, in the opposite order.
    (N * N * X - N * Y + Z + N * N, M * N * N, {X: M, Y: N + 1, Z: N}, Steps("x1", 1, N + 1)),
    (N * N * X - N * Y + Z + N * N - N, M * N * N, {X: M, Y: N + 1, Z: N}, Steps("x1", 0, N)),
    (N * X - Y + N, M * N, {X: M, Y: N + 2}, Steps("x1", 1, N + 1)),
    (N * N * X + N * Y - Z + N - 1, M * N * N, {X: M, Y: N, Z: N}, Steps("x1", 0, N)),
    # Nobody knows which of the sizes is the larger one.
    (N * N * X + (M - N) * Y + Z, M * N * N, {X: M, Y: N, Z: N}, None),
]


@pytest.mark.parametrize(("index", "size", "extents", "expected"), LOADS, ids=str)
def test_steps_without_a_clamp(
    index: sympy.Expr, size: sympy.Expr, extents: dict[sympy.Symbol, Extent], expected: Any
) -> None:
    steps = steps_inside(index, size, extents)
    if expected is not ...:
        assert steps == expected
    for n, m in itertools.product(range(2, 7), repeat=2):
        for point in points(extents, n, m) if steps else ():
            assert steps
            if (
                steps.first
                <= point[AxisSymbol(steps.axis)]
                < sympy.sympify(steps.end).subs(point).replace(FloorDiv, lambda a, b: a // b)
            ):
                assert 0 <= index.subs(point) < size.subs(point)


WRAPPED: dict[str, Callable[[Tensor], Tensor]] = {
    "8 bits": lambda x: (torch.arange(300).to(torch.int8) >= 0) * x,
    "condition as a number": lambda x: x & (torch.arange(300) < x.shape[0] + 5).to(torch.int32),
}


@pytest.mark.parametrize("function", WRAPPED.values(), ids=WRAPPED)
def test_nothing_is_concluded_from_what_a_cast_changed(function: Callable[[Tensor], Tensor], check: Check) -> None:
    """A coordinate of 8 bits may be negative; a bool that is always true is 1 as an integer, not all bits."""
    check(function, torch.arange(300, dtype=torch.int32))


SIZES = ((2, 3, 2, 2), (2, 2, 3, 17), (3, 2, 16, 5), (2, 5, 33, 34), (4, 2, 7, 64))


def stencil(x: Tensor) -> Tensor:
    y = F.pad(x, (3, 3, 3, 3))
    return sum(y[:, :, i : i + x.shape[2], j : j + x.shape[3]] for i, j in ((0, 3), (3, 0), (3, 6), (6, 3), (2, 4)))


FILTERS: dict[str, Callable[[Tensor], Any]] = {
    "stencil": stencil,
    "largest": lambda x: F.max_pool2d(x, 3, 2, 1),
    "mean": lambda x: F.avg_pool2d(x, (1, 2), 1, count_include_pad=False),
    "mean's gradient": lambda x: torch.ops.aten.avg_pool2d_backward(
        x, x + 1, [3, 3], [1, 1], [1, 1], False, True, None
    ),
    "one side": lambda x: F.pad(x, (0, 2, 1, 0), value=7.0) * 2,
    "crop": lambda x: F.pad(x, (-1, 2, 1, -1), value=3.0),
    "wrapped": lambda x: F.pad(x, (2, 2, 1, 1), mode="circular"),
    "signal": lambda x: F.max_pool1d(x.flatten(1, 2), 3, 1, 1),
    "shift": lambda x: x - F.pad(x, (1, 0))[..., :-1] - F.pad(x, (0, 0, 1, 0))[:, :, :-1],
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("channels_last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("name", FILTERS)
def test_filters_of_dynamic_pictures(name: str, channels_last: bool) -> None:
    compiled = torch.compile(FILTERS[name], dynamic=True, fullgraph=True)
    for size in SIZES:
        x = torch.randn(size, generator=torch.Generator().manual_seed(3))
        if channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        torch.testing.assert_close(compiled(x), FILTERS[name](x))


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of all kernels that are planned from now on, without their versions for known sizes."""
    found: list[str] = []
    schedule = pipeline.schedule_kernel

    def watched(*arguments: Any) -> Any:
        scheduled = schedule(*arguments)
        found.append(scheduled.kernel.text.partition("\nSIZES = ")[0])
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_kernel", watched)
    return found


def test_no_condition_of_an_axis_without_padding(check: Check, texts: list[str]) -> None:
    check(lambda x: F.pad(x, (1, 1, 0, 0)) * 2, torch.randn(3, 4, 20, 30), dynamic=True)
    (text,) = texts
    compared = [line for line in text.splitlines() if "ops.lt(" in line or "ops.ge(" in line]
    assert len(compared) == 2 and all("int64" not in line for line in compared)


def test_rows_inside_have_no_clamp(check: Check, texts: list[str]) -> None:
    check(stencil, torch.randn(3, 4, 20, 30), dynamic=True)
    (text,) = texts
    clamped = [line for line in text.splitlines() if "hl.clamp(" in line]
    along = [line for line in clamped if not line.endswith(" + x2*1]")]
    assert len(clamped) == 5 and len(along) == 3
    assert all("[hl.select((x1 >= " in line and "likely" not in line.partition("hl.clamp(")[2] for line in along)


def test_rows_inside_of_a_filter_have_no_clamp(check: Check, texts: list[str]) -> None:
    """Batch and channels are one loop, so that the index has no coordinates, with sizes that are known either."""
    check(lambda x: F.unfold(x, 3, padding=1), torch.randn(2, 3, 20, 30))
    (text,) = texts
    assert text.count("hl.clamp(") == text.count("hl.select((x3 >= 2) & (x3 < 18), hl.likely(") == 1


def test_windows_of_pooling_are_masked_at_their_ends_alone(check: Check, texts: list[str]) -> None:
    """An element is in the first two of three windows at least, along a dimension of two or more."""
    check(FILTERS["mean's gradient"], torch.randn(2, 3, 20, 30), dynamic=True)
    (text,) = texts
    assert text.count("ops.lt(") == 2 and text.count("ops.where(") == 5


def test_what_rows_have_in_common_is_no_part_of_a_piece(check: Check, texts: list[str]) -> None:
    """Elements of several rows are as far from each other, which is found out once (build/llvm/near_gathers.py)."""
    check(FILTERS["mean's gradient"], torch.randn(2, 3, 60, 90), dynamic=True)
    (text,) = texts
    loads = re.findall(r"in_ptr0\[(.*)\]", text)
    chosen = {load.partition(" + hl.select(")[2] for load in loads}
    assert len(loads) == 9 and len(chosen) == 3 and "x1" not in "".join(chosen)


def test_masks_within_masks(check: Check, texts: list[str]) -> None:
    """Circular padding is written as slices of slices: of the masks in the others' regions nothing is left."""
    check(FILTERS["wrapped"], torch.randn(2, 3, 20, 20), dynamic=True)
    columns, rows = texts
    assert columns.count("in_ptr0[") == columns.count("in_ptr1[") == 3 and "int64" not in columns
    assert rows.count("in_ptr0[") == 3 and "hl.clamp(hl.likely((-1*n2 + x1)), 0, (n2 + 1))" in rows
