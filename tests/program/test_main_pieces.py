"""The linear piece of an index is the index wherever it is said to hold, for all sizes, and most of a long row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy
import torch
import torch.nn.functional as F
from sympy import Abs
from torch import Tensor
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend.program.index import AxisSymbol, FloorDiv, Max, Min, Mod, Select, SizeSymbol
from halide_backend.program.loop_program import Axis, Load, Piece
from halide_backend.program.main_pieces import main_piece, with_main_pieces

X, Y, N = AxisSymbol("x1"), AxisSymbol("x0"), SizeSymbol("n0", nonnegative=True)

#: What a row of so many elements more than N reads, and the steps that are no part of the piece in the middle.
INDICES: dict[str, tuple[sympy.Expr, int, int]] = {
    "rolled left": (Y * N + Mod(X + 3, N), 0, 3),
    "rolled right": (Y * N + Mod(X + Mod(N - 3, N), N), 0, 3),
    "replicated": (Y * N + Min(N - 1, Max(0, X - 2)), 4, 4),
    "reflected": (Y * N + (N - 1) - Abs((N - 1) - Abs(X - 1)), 2, 2),
    "wrapped": (Y * N + Select(X - 2 < 0, X - 2 + N, Select(X - 2 >= N, X - 2 - N, X - 2)), 4, 4),
    "flipped and rolled": (Y * N + Mod(N - 1 - X + 5, N), 0, 5),
    "outer function": (Mod(Y + 1, N) * N + Abs(X - 2), 0, 2),
    "enlarged, its begin": (Y * N + Max(0, FloorDiv(X - 1, 2)), 0, 1),
    "enlarged, its end": (Y * N + Min(FloorDiv(X + N, 2), N - 2), 0, 2),
    "gradient of pooling": (Y * N + Min(FloorDiv(X, 2) + 1, Min(2 * N, FloorDiv(X + 1, 2) + 1) - 1), 0, 0),
}


def at(index: sympy.Expr, x: int, n: int, y: int = 3) -> int:
    return int(index.xreplace({X: sympy.Integer(x), Y: sympy.Integer(y), N: sympy.Integer(n)}))


def piece_of(index: sympy.Expr, more: int, typical: int = 200) -> Piece | None:
    return main_piece(index, Axis("x1", N + more, typical + more), {N: typical})


@pytest.mark.parametrize(("index", "more", "others"), INDICES.values(), ids=INDICES)
def test_pieces_hold_for_all_sizes(index: sympy.Expr, more: int, others: int) -> None:
    piece = piece_of(index, more)
    assert piece is not None and piece.steps.axis == "x1"
    for n in (1, 2, 3, 4, 5, 6, 40, 200, 333):
        first, end = (at(sympy.sympify(bound), 0, n) for bound in (piece.steps.first, piece.steps.end))
        inside = [x for x in range(n + more) if first <= x < end]
        assert [at(piece.index, x, n) for x in inside] == [at(index, x, n) for x in inside]
        if n >= 40:
            assert len(inside) == n + more - others


@pytest.mark.parametrize(
    "index",
    [
        FloorDiv(X, 2) + Y * N,
        Mod(X, 16) + Y * N,
        # The middle is where a piece ends: neither half is most of the row.
        Select(FloorDiv(N, 2) - 20 > X, X, Select(FloorDiv(N, 2) + 20 > X, X + 1, X + 2)),
        Mod(X + Y, N),
        Mod(X, Abs(X - 3) + 1),
        Abs(2 * X - 5),
        Y * N + X,
        Min(X, SizeSymbol("n1", nonnegative=True)),
        Max(FloorDiv(X, 2), FloorDiv(X, 3)),
        Max(FloorDiv(X + N, 2), FloorDiv(X + 200, 2)),
        FloorDiv(Max(0, X - 1), 2) + FloorDiv(Max(0, X - 2), 2),
        FloorDiv(Max(0, X - 1), 5),
    ],
    ids=str,
)
def test_what_has_no_main_piece(index: sympy.Expr) -> None:
    assert piece_of(index, 0) is None


def test_short_rows_have_none() -> None:
    assert piece_of(Mod(X + 3, N), 0, typical=30) is None
    assert piece_of(Mod(X + 3, N), 0, typical=40) is not None


@pytest.mark.parametrize("dynamic", [False, True], ids=["known sizes", "dynamic"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.roll(x, 3, -1) * 2,
        lambda x: torch.roll(x, -5, -1) - x,
        lambda x: torch.roll(x, (2, 3), (0, 1)),
        lambda x: F.pad(x, (2, 3), mode="reflect") + 1,
        lambda x: F.pad(x, (2, 3), mode="replicate") + 1,
        lambda x: torch.roll(x, 3, -1).softmax(-1),
    ],
    ids=["right", "left", "both", "reflected", "replicated", "softmax"],
)
def test_values(function: Callable[[Tensor], Tensor], dynamic: bool) -> None:
    torch._dynamo.reset()
    halide_backend.reset_stats()
    compiled = torch.compile(function, backend="halide_backend", dynamic=dynamic)
    for columns in (200, 64, 47, 17, 6) if dynamic else (200,):
        x = torch.randn(7, columns, generator=torch.Generator().manual_seed(columns))
        torch.testing.assert_close(compiled(x), function(x))
    texts = [record.text for record in halide_backend.records()]
    assert any("hl.likely" in text for text in texts)


def test_masked_loads_have_no_piece_that_leads_out_of_range() -> None:
    """Beside a rolled picture, in its padding, the piece of its index need not be a place in memory."""
    torch._dynamo.reset()
    halide_backend.reset_stats()

    def padded(x: Tensor) -> Tensor:
        return F.pad(torch.roll(x, 3, -1), (2, 3)) * 2

    compiled = torch.compile(padded, backend="halide_backend", dynamic=True)
    x = torch.randn(7, 200, generator=torch.Generator().manual_seed(0))
    with inductor_config.patch(force_disable_caches=True):
        torch.testing.assert_close(compiled(x), padded(x))
    masked = []
    for record in halide_backend.records():
        assert record.program is not None
        program = with_main_pieces(record.program, "x1")
        loads = [(value, value.attribute) for value in program.values if isinstance(value.attribute, Load)]
        masked += [load for value, load in loads if any(program.values[o].dtype == "bool" for o in value.operands)]
    assert masked and any(load.index.has(Mod) for load in masked)
    assert all(load.main is None or load.main.steps == load.inside for load in masked)


@pytest.mark.parametrize("function", [F.avg_pool1d, F.max_pool1d])
def test_gradients_of_pooling(function: Callable[..., Tensor]) -> None:
    def gradient(x: Tensor, g: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x, 3, 2, 1), x, g)[0]

    torch._dynamo.reset()
    halide_backend.reset_stats()
    compiled = torch.compile(gradient, backend="halide_backend", dynamic=True)
    with inductor_config.patch(force_disable_caches=True):
        for columns in (201, 200, 64, 47, 17, 6, 3):
            generator = torch.Generator().manual_seed(columns)
            x, g = torch.randn(7, columns, generator=generator), torch.randn(7, (columns + 1) // 2, generator=generator)
            torch.testing.assert_close(compiled(x, g), gradient(x, g))
    assert halide_backend.stats()["delegated_kernels"] == 0
    if function is F.avg_pool1d:
        assert any("hl.select((x1 >= 0)" in record.text for record in halide_backend.records())
