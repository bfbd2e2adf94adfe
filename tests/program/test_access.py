"""Which accesses are proved to move whole vectors."""

from __future__ import annotations

from halide_backend.program.access import first_word
from halide_backend.program.index import AxisSymbol
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
