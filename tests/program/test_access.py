"""Which accesses are proved to move whole vectors."""

from __future__ import annotations

import sympy
from torch.utils._sympy.functions import Identity

from halide_backend.program.access import first_word, is_contiguous
from halide_backend.program.loop_program import Axis

ROW, COLUMN = (Axis(name, 64, 64).symbol for name in ("x0", "x1"))
CHUNK = sympy.Symbol("x1_c", integer=True, nonnegative=True)


def test_a_chunk_begins_at_a_word() -> None:
    assert first_word(64 * ROW + COLUMN, "x1", "float32", 4) == 64 * ROW + 4 * CHUNK
    assert first_word(64 * ROW + COLUMN + 8, "x1", "bfloat16", 8) == 32 * ROW + 4 * CHUNK + 4


def test_a_chunk_at_an_unaligned_place_has_no_first_word() -> None:
    assert first_word(63 * ROW + COLUMN, "x1", "float32", 4) is None
    assert first_word(64 * ROW + COLUMN + 2, "x1", "bfloat16", 8) is None
    assert first_word(64 * ROW + 2 * COLUMN, "x1", "float32", 4) is None


def test_what_inductor_keeps_together_is_multiplied_out() -> None:
    index = 64 * ROW + Identity(COLUMN - 32)
    assert is_contiguous(index, "x1")
    assert first_word(index, "x1", "float32", 4) == 64 * ROW + 4 * CHUNK - 32
