"""Index expressions as text: what int32 holds is computed in int32, whatever it is a part of, and all else in int64."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest
import sympy

from halide_backend.codegen.index_text import index_text, is_narrow, text_by_stride
from halide_backend.program.index import AxisSymbol, FloorDiv, Max, Min, Mod, SizeSymbol, ValueSymbol

X, Y, N, M = AxisSymbol("x0"), AxisSymbol("x1"), SizeSymbol("n0", nonnegative=True), SizeSymbol("n1", nonnegative=True)
V = ValueSymbol.of(3)
K = SizeSymbol("k0")

NARROW = [
    X,
    X + 3,
    N,
    N - 2,
    FloorDiv(N + 1, 2),
    FloorDiv(V, 3) - 1,
    FloorDiv(N, M),
    FloorDiv(FloorDiv(X, N), M) + 1,
    Mod(FloorDiv(X, N), M),
    Min(FloorDiv(X + 1, 2) + 1, Max(N, Y)),
    sympy.Integer(9),
]
WIDE = [
    X * N,
    X + Y,
    2 * N,
    N * M,
    N + M,
    X + (1 << 20),
    K,
    FloorDiv(X, N * M),
    Mod(X, N + M),
    FloorDiv(X, K),
    FloorDiv(X * N, 2),
    Min(X, N * M),
    -X,
]


@pytest.mark.parametrize("index", NARROW, ids=str)
def test_what_int32_holds(index: sympy.Expr) -> None:
    assert is_narrow(index)


@pytest.mark.parametrize("index", WIDE, ids=str)
def test_what_int32_may_not_hold(index: sympy.Expr) -> None:
    assert not is_narrow(index)


class Wide(int):
    """An int64 in a text: operations with it are wide."""

    def _wide(self, operation: Any, other: Any) -> Wide:
        return Wide(getattr(int, operation)(self, other))


for _name in ("__add__", "__sub__", "__mul__", "__floordiv__", "__mod__", "__radd__", "__rsub__", "__rmul__"):
    setattr(Wide, _name, lambda self, other, _name=_name: self._wide(_name, other))


def divided(operation: str) -> Any:
    def divide(whole: int, part: int) -> int:
        assert not isinstance(whole, Wide) and not isinstance(part, Wide), "divided in int64"
        return int(getattr(int, operation)(whole, part))

    return divide


@pytest.mark.parametrize(
    "index",
    [
        FloorDiv(X, FloorDiv(N, 2)) * N + Mod(X, FloorDiv(N, 2)),
        N * FloorDiv(V, 3) + Mod(X, N),
        FloorDiv(N * X, M) + Mod(X * N, M),
        FloorDiv(FloorDiv(X, M), N) + Mod(FloorDiv(X, M), N),
        Mod(X - 3, N) * N,
        Mod(X, 2 * M) + 7 * FloorDiv(X, 3 * M),
        Mod(FloorDiv(FloorDiv(X, M), 2 * M), 2 * N) + Mod(FloorDiv(X, M), 2 * M),
    ],
    ids=str,
)
def test_divisions_are_as_narrow_as_what_they_divide(index: sympy.Expr) -> None:
    text = index_text(index, wide=True)
    hl = SimpleNamespace(cast=lambda kind, value: Wide(value), Int=lambda bits: bits)
    memory = SimpleNamespace(quotient=divided("__floordiv__"), remainder=divided("__mod__"))
    known = {"hl": hl, "memory": memory, "x0": 23, "n0": 9, "n1": 4, "t3": 7}
    wanted = index.xreplace({X: sympy.Integer(23), N: sympy.Integer(9), M: sympy.Integer(4), V: sympy.Integer(7)})
    found = eval(text, known)
    assert found == int(wanted) and isinstance(found, Wide)
    # Products of sizes are int64 before they are divided.
    assert not re.search(r"n0\*x0|x0\*n0", text)


def test_terms_that_a_vector_of_several_rows_joins_adjoin() -> None:
    """Halide finds that 13*(x // 13) + x % 13 is x of adjoining terms only: beside a stride that is a size."""
    assert text_by_stride(13 * Y + 13 * N * AxisSymbol("x2") + X + 7) == "(x0 + 13*x1 + 13*n0*x2 + 7)"
