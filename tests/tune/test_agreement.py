"""What counts as the same results: all that another order of additions explains, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from halide_backend.program.loop_program import LoopProgram
from halide_backend.tune.measurement.agreement import disagreement

Made = Callable[..., LoopProgram]

#: The memory of the output of the programs here.
OUT = 1000


def sums_in_order(x: torch.Tensor, blocks: int) -> torch.Tensor:
    """Sums of rows in float32, each of so many running sums, which are added at the end."""
    columns = x.shape[1]
    running = torch.zeros(x.shape[0], blocks)
    for begin in range(0, columns, blocks):
        running += x[:, begin : begin + blocks]
    total = torch.zeros(x.shape[0])
    for block in range(blocks):
        total += running[:, block]
    return total


@pytest.mark.parametrize("columns", [64, 1024, 16384])
def test_another_order_of_additions_is_fine(row_sums: Made, columns: int) -> None:
    x = torch.randn(200, columns, generator=torch.Generator().manual_seed(columns))
    orders = [sums_in_order(x, blocks) for blocks in (1, 4, 64)]
    program = row_sums(200, columns)
    assert not torch.equal(orders[0], orders[1])
    for one in orders:
        for other in orders:
            assert disagreement(program, {OUT: one}, {OUT: other}) == ""


@pytest.mark.parametrize("columns", [64, 1024, 16384])
def test_a_missing_term_is_not(row_sums: Made, columns: int) -> None:
    x = torch.randn(200, columns, generator=torch.Generator().manual_seed(columns))
    wanted = x.sum(1)
    wrong = wanted - x[:, columns // 2]
    found = disagreement(row_sums(200, columns), {OUT: wrong}, {OUT: wanted})
    assert "elements differ from the rules' kernel" in found
    # One term of 16,384 is a hundredth of the sum, and hardly any is small enough to hide.
    assert int(found.split()[1]) >= 190


def test_integers_are_equal_or_wrong(doubled: Made) -> None:
    wanted = torch.arange(1000, dtype=torch.int32)
    got = wanted.clone()
    assert disagreement(doubled(), {OUT: got}, {OUT: wanted}) == ""
    got[3] += 1
    assert "1 of 1000 elements" in disagreement(doubled(), {OUT: got}, {OUT: wanted})


def test_a_narrow_result_may_be_rounded_the_other_way(row_sums: Made) -> None:
    wanted = torch.full((64,), 1.0, dtype=torch.bfloat16)
    program = row_sums(64, 64, torch.bfloat16)
    unit = 2**-7
    assert disagreement(program, {OUT: wanted + unit}, {OUT: wanted}) == ""
    assert disagreement(program, {OUT: wanted + 2 * unit}, {OUT: wanted})


@pytest.mark.parametrize(
    ("got", "wanted", "same"),
    [
        (float("nan"), float("nan"), True),
        (float("inf"), float("inf"), True),
        (float("inf"), float("-inf"), False),
        (float("nan"), 1.0, False),
        (1.0, float("nan"), False),
        (3e38, float("inf"), False),
        (0.0, -0.0, True),
    ],
)
def test_numbers_that_are_none(row_sums: Made, got: Any, wanted: Any, same: bool) -> None:
    results = [torch.ones(64) for _ in range(2)]
    results[0][5], results[1][5] = got, wanted
    found = disagreement(row_sums(), {OUT: results[0]}, {OUT: results[1]})
    assert (found == "") is same
