"""What holds of a number of steps for all sizes."""

from __future__ import annotations

from types import SimpleNamespace

import sympy

from halide_backend.codegen.index_text import factor_text, index_text
from halide_backend.program.extents import ceil_div, is_multiple, product
from halide_backend.program.index import Select, SizeSymbol

N, M = (SizeSymbol(name, nonnegative=True) for name in ("n0", "n1"))


def test_divisibility_is_proved_or_not_there() -> None:
    assert is_multiple(24, 8) and not is_multiple(20, 8)
    assert is_multiple(8 * N * M + 16, 8)
    assert not is_multiple(8 * N + 4, 8)
    assert not is_multiple(N, 2)
    assert not is_multiple(N * (N + 1) / 2, 1)


def test_pieces_cover_everything() -> None:
    assert (ceil_div(24, 8), ceil_div(25, 8)) == (3, 4)
    assert ceil_div(24 * N, 8) == 3 * N
    for size in (0, 1, 7, 8, 9):
        assert eval(index_text(ceil_div(N, 8)), {"n0": size}) == -(-size // 8)
        assert eval(index_text(ceil_div(N * M, 8)), {"n0": size, "n1": 3}) == -(-3 * size // 8)


def test_products_stay_numbers_where_they_are() -> None:
    assert product((3, 4)) == 12
    assert product((3, N + 1)) == 3 * N + 3
    assert product(()) == 1


def test_a_factor_is_one_operand() -> None:
    assert factor_text(3) == "3"
    assert eval(f"100 // {factor_text(N * M)}", {"n0": 5, "n1": 4}) == 5


def test_relations_and_choices_have_their_value() -> None:
    for relation in (N < M, N <= M, N > M, N >= M, sympy.Eq(N, M), sympy.Ne(N, M)):
        text = index_text(Select(relation, N + 63, N))
        for sizes in ((1, 2), (2, 2), (3, 2)):
            n, m = sizes
            wanted = n + 63 if relation.subs({N: n, M: m}) else n
            names = {"n0": n, "n1": m, "hl": SimpleNamespace(select=lambda c, a, b: a if c else b)}
            assert eval(text, names) == wanted, text
