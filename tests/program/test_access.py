"""Which accesses are proved to move whole vectors."""

from __future__ import annotations

import itertools

from halide_backend.program.access import first_word, in_chunks, is_contiguous, runs_along
from halide_backend.program.index import AxisSymbol, FloorDiv, Mod
from halide_backend.program.loop_program import Axis

ROW, COLUMN = (Axis(name, 64, 64).symbol for name in ("x0", "x1"))
CHUNK = AxisSymbol("x1_c")


def test_a_chunk_begins_at_a_word() -> None:
    assert first_word(64 * ROW + COLUMN, "x1", "float32", 4) == 64 * ROW + 4 * CHUNK
    assert first_word(64 * ROW + COLUMN + 8, "x1", "bfloat16", 8) == 32 * ROW + 4 * CHUNK + 4


def test_a_chunk_at_an_unaligned_place_has_no_first_word() -> None:
    assert first_word(63 * ROW + COLUMN, "x1", "float32", 4) is None
    assert first_word(64 * ROW + COLUMN + 2, "x1", "bfloat16", 8) is None
    assert first_word(64 * ROW + 2 * COLUMN, "x1", "float32", 4) is None


def test_chunks_of_quotients_and_remainders() -> None:
    """Against every value: where a chunk straddles no jump, the index is the same, and steps by one element."""
    x, y, c = (AxisSymbol(name) for name in ("x", "y", "x_c"))
    for chunk, offset, divisor, modulus in itertools.product((2, 4, 8), (0, 40, 44), (32, 48, 36), (5, 7)):
        whole = offset * y + x
        index = 1000 * Mod(FloorDiv(whole, divisor), modulus) + Mod(whole, divisor)
        found = in_chunks(index, "x", chunk)
        fits = offset % chunk == 0 and divisor % chunk == 0
        assert is_contiguous(found, "x") == fits
        for at, row in itertools.product(range(96), range(3)):
            assert found.subs({x: at, y: row, c: at // chunk}) == index.subs({x: at, y: row})


def test_what_runs_along_an_axis_but_for_jumps() -> None:
    x, y = AxisSymbol("x"), AxisSymbol("y")
    assert runs_along(1000 * FloorDiv(40 * y + x, 32) + Mod(40 * y + x, 32), "x")
    assert not runs_along(1000 * FloorDiv(40 * y + x, 32) + Mod(40 * y + 2 * x, 32), "x")
    assert not runs_along(Mod(x, y + 1) + x, "x")
