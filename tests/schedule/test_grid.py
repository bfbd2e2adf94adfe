"""Which loop is the first dimension of a grid: only that one may be long."""

from __future__ import annotations

import pytest

from halide_backend.errors import Unsupported
from halide_backend.schedule.cuda.grid import blocks, grid, innermost
from halide_backend.schedule.cuda.unrolling import divisor
from halide_backend.schedule.stage import Loop
from halide_backend.schedule.steps import GpuBlocks, Reorder

SHORT, LONG = Loop("x1", 3, "x1"), Loop("x0", 140_000, "x0")
DYNAMIC = Loop("x2", 2, "x2", fixed=False)


def test_halide_gives_the_first_dimension_to_the_innermost_loop() -> None:
    assert grid("f", [LONG, SHORT]) == (GpuBlocks("f", ("x0", "x1")),)
    assert grid("f", [SHORT, LONG])[0] == Reorder("f", ("x0", "x1"))
    assert grid("f", [SHORT, DYNAMIC])[0] == Reorder("f", ("x2", "x1"))
    assert innermost([SHORT, LONG]) == LONG
    assert innermost([SHORT, Loop("x0", 60_000, "x0")]) == SHORT


def test_two_long_dimensions_are_refused() -> None:
    for loops in ([LONG, DYNAMIC], [LONG, Loop("x3", 70_000, "x3")], [SHORT] * 4):
        with pytest.raises(Unsupported, match="a grid of"):
            grid("f", loops)


def test_only_a_loop_of_one_step_needs_no_dimension() -> None:
    once, unknown = Loop("x3", 1, "x3"), Loop("x4", 1, "x4", fixed=False)
    assert grid("f", [SHORT, SHORT, once, SHORT]) == (GpuBlocks("f", ("x1", "x1", "x1")),)
    with pytest.raises(Unsupported, match="a grid of"):
        # Typically one step, but nobody knows.
        grid("f", [SHORT, SHORT, SHORT, unknown])


def test_blocks_of_a_dynamic_loop_are_dynamic() -> None:
    assert blocks(DYNAMIC, "block", 4) == Loop("block", 1, "x2", fixed=False)
    assert blocks(LONG, "block", 4).extent == 35_000


def test_steps_that_are_written_out_divide_what_is_known_or_wait_the_fewest_times() -> None:
    assert divisor(Loop("r", 30, "r"), 8) == 6
    assert divisor(Loop("r", 30, "r"), 32) == 30
    assert divisor(Loop("r", 300, "r"), 32) == 30
    # Two rounds of 15 and one iteration; 16 would leave 15, each of which waits for its load.
    assert divisor(Loop("r", 31, "r"), 16) == 15
    assert divisor(Loop("r", 77, "r"), 32) == 25
    # Of a typical number nothing follows for the number itself.
    assert divisor(Loop("r", 30, "r", fixed=False), 8) == 8
    assert divisor(Loop("r", 3, "r", fixed=False), 16) == 2
