"""Tiles of 16-bit elements that are turned: rows that share a place of a cache are stored a line at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from halide_backend.inspection.compiled import compile_for
from halide_backend.pipeline import current_target
from halide_backend.schedule.device import device_of
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.steps import Split


def in_pairs(plans: list[Plan]) -> bool:
    return any(
        isinstance(step, Split) and step.inner == "x1_p" and step.factor == 2 for plan in plans for step in plan.steps
    )


def turned(x: Tensor) -> Tensor:
    return x.t().contiguous()


# Rows of 2,048 elements of 16 bits are a page apart; those of 1,024 are not, and 32-bit rows of a tile fill a line.
@pytest.mark.parametrize(
    ("shape", "dtype", "pair"),
    [
        ((2048, 512), torch.bfloat16, True),
        ((2048, 48), torch.float16, True),
        ((4096, 80), torch.int16, True),
        ((1024, 512), torch.bfloat16, False),
        ((2048, 512), torch.float32, False),
        ((2048, 2048), torch.bfloat16, False),
        ((2064, 512), torch.bfloat16, False),
    ],
)
def test_whole_lines_are_stored(shape: tuple[int, int], dtype: torch.dtype, pair: bool, plans: list[Plan]) -> None:
    x = (torch.randn(shape) * 100).to(dtype)
    compiled = compile_for("halide_backend", turned)
    assert torch.equal(compiled.call(x), turned(x))
    assert not compiled.delegated
    if device_of(current_target("cpu")).vector_registers == 16:
        # Two tiles of AVX2 fit into its registers where a row has eight elements, half a line of float32.
        pair = dtype is torch.float32 and shape == (2048, 512)
    assert in_pairs(plans) == pair


def test_what_is_computed_leaves_no_registers_for_two_tiles(plans: list[Plan]) -> None:
    x, y = torch.randn(2048, 512).bfloat16(), torch.randn(512, 2048).bfloat16()
    compiled = compile_for("halide_backend", lambda x, y: x.t() + y)
    assert torch.equal(compiled.call(x, y), x.t() + y)
    assert not in_pairs(plans)
