"""Where attention copies keys, and in which order it computes heads and batches."""

from __future__ import annotations

import pytest

from halide_backend.build.compiler import loop_nest
from halide_backend.codegen.cpu.attention_text import attention_text, gradients_text
from halide_backend.kernel_library.attention import Attention, Heads
from halide_backend.kernel_library.attention_gradients import AttentionGradients

BATCH, HEADS, ROWS, DEPTH = 3, 5, 32, 32
ROW = HEADS * DEPTH
OPERAND = Heads(ROW * ROWS, DEPTH, ROW)

OF_HEADS = Heads(0, ROWS * ROWS, ROWS)
OF_BATCHES = Heads(ROWS * ROWS, 0, ROWS)
FOR_ALL = Heads(0, 0, ROWS)
OF_EACH = Heads(HEADS * ROWS * ROWS, ROWS * ROWS, ROWS)


def nest_of(mask: Heads | None) -> str:
    operands = (OPERAND, OPERAND, OPERAND)
    attention = Attention(BATCH, HEADS, ROWS, ROWS, DEPTH, 0.5, False, *operands, mask)
    extents = [BATCH * ROW * ROWS] * 3 + [BATCH * HEADS * ROWS * ROWS] * (mask is not None)
    return loop_nest(attention_text(attention, extents, 16), "attention")


@pytest.mark.parametrize("mask", [None, OF_HEADS, OF_BATCHES, FOR_ALL, OF_EACH])
def test_batches_follow_one_another_where_they_share_the_mask_of_a_head(mask: Heads | None) -> None:
    nest = nest_of(mask)
    heads, batches = nest.index("parallel h"), nest.index("parallel b")
    assert (heads < batches) == (mask == OF_HEADS)


def test_keys_are_copied_by_whole_vectors_before_they_are_transposed() -> None:
    copy, transposition = nest_of(None).split("produce copied:")[1].split("produce keys:")
    assert "vectorized d" in copy
    assert "vectorized j" in transposition.split("consume keys:")[0]


def test_gradients_of_queries_keys_and_values_share_their_loops_and_weights() -> None:
    attention = Attention(BATCH, HEADS, ROWS, ROWS, DEPTH, 0.5, False, OPERAND, OPERAND, OPERAND)
    gradients = AttentionGradients(attention, OPERAND, OPERAND, Heads(ROWS * HEADS, 1, HEADS))
    extents = [BATCH * ROW * ROWS] * 5 + [BATCH * HEADS * ROWS]
    nest = loop_nest(gradients_text(gradients, extents, 16), "attention")
    assert nest.count("produce weights:") == nest.count("produce products:") == 1
    shared = nest.split("produce weights:")[1]
    assert "produce of_query:" in shared and "produce of_block:" in shared
