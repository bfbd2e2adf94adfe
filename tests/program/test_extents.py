"""What holds of a number of steps for all sizes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import sympy

from halide_backend.codegen.index_text import divided_texts, index_text
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


def test_numbers_are_divided_by_whole_extents() -> None:
    memory = SimpleNamespace(
        quotient=lambda a, *parts: a // math.prod(parts), remainder=lambda a, *parts: a % math.prod(parts)
    )
    for extent in (20, N, N * M, N + 1):
        value = extent if isinstance(extent, int) else int(extent.subs({N: 5, M: 4}))
        found = [eval(text, {"n0": 5, "n1": 4, "memory": memory, "k": 103}) for text in divided_texts("k", extent)]
        assert tuple(found) == divmod(103, value)


def test_relations_and_choices_have_their_value() -> None:
    for relation in (N < M, N <= M, N > M, N >= M, sympy.Eq(N, M), sympy.Ne(N, M)):
        text = index_text(Select(relation, N + 63, N))
        for sizes in ((1, 2), (2, 2), (3, 2)):
            n, m = sizes
            wanted = n + 63 if relation.subs({N: n, M: m}) else n
            names = {"n0": n, "n1": m, "hl": SimpleNamespace(select=lambda c, a, b: a if c else b)}
            assert eval(text, names) == wanted, text
