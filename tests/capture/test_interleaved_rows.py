"""Rows of a few elements from as many lines of memory: vectors across the rows, interleaved when they are stored."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend.schedule.cpu.kernel import INTERLEAVED
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.steps import Unroll, Vectorize

SIZES = ((2, 18, 5, 40), (2, 36, 2, 3), (3, 18, 4, 17), (2, 36, 3, 16), (2, 18, 7, 33))


SHUFFLES: dict[str, Callable[[Tensor], Tensor]] = {
    "three": lambda x: F.pixel_shuffle(x, 3),
    "three of another type": lambda x: F.pixel_shuffle(x, 3).to(torch.bfloat16),
    "with a formula": lambda x: F.pixel_shuffle(x.exp(), 3).sigmoid() * 2,
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("function", SHUFFLES.values(), ids=SHUFFLES)
def test_pixel_shuffle(plans: list[Plan], function: Callable[[Tensor], Tensor], dynamic: bool) -> None:
    halide_backend.reset_stats()
    compiled = torch.compile(function, dynamic=dynamic, fullgraph=True)
    for size in SIZES[: None if dynamic else 1]:
        x = torch.randn(size, generator=torch.Generator().manual_seed(3))
        torch.testing.assert_close(compiled(x), function(x))
    assert halide_backend.stats()["delegated_kernels"] == 0
    steps = [step for step in plans[0].steps if step.func == "out_ptr0"]
    vectors, elements = ([step.var for step in steps if isinstance(step, kind)] for kind in (Vectorize, Unroll))
    # Of rows that are several vectors some of these are unrolled, too.
    (across,), (*_, along) = vectors, elements
    assert across.endswith("_i_v") and along.endswith("_u") and across[:2] < along[:2]


@pytest.mark.parametrize(
    ("columns", "dtype", "interleaved"),
    [
        (16, torch.int8, False),
        (8, torch.int8, False),
        (8, torch.bfloat16, False),
        (4, torch.float32, False),
        (4, torch.int8, True),  # no register of 32 bits
        (3, torch.float32, True),
    ],
    ids=str,
)
def test_rows_that_are_small_vectors(plans: list[Plan], columns: int, dtype: torch.dtype, interleaved: bool) -> None:
    """A smaller register holds such a row; across rows each of its elements would be loaded by itself."""
    x = (torch.randn(5003, 2 * columns + 1, generator=torch.Generator().manual_seed(3)) * 9).to(dtype)
    assert torch.equal(torch.compile(lambda x: x[:, :columns].clone(), fullgraph=True)(x), x[:, :columns])
    (plan,) = plans
    assert [choice.setting for choice in plan.choices if choice.knob is INTERLEAVED] == [interleaved]
