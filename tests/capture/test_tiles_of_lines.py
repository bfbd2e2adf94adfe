"""Tiles of 16-bit elements that are turned: rows that share a place of a cache are stored a line at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import halide_backend
from halide_backend.inspection.compiled import compile_for
from halide_backend.pipeline import current_target
from halide_backend.schedule.device import device_of
from halide_backend.schedule.mapping.transposition import Transposition
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
    # Two tiles of 8 x 8 float32, whose rows are half a line with AVX2, would be all of 16 registers.
    # On Intel's processors they are as wide as they can be.
    device = device_of(current_target("cpu"))
    wide = device.vendor == "intel" and shape[1] % 32 == 0
    assert in_pairs(plans) == (pair and device.vector_registers > 16 and not wide)


# 37 x 43 would be 64 x 64.
@pytest.mark.parametrize(
    ("shape", "dtype", "side"),
    [
        ((64, 96), torch.bfloat16, 32),
        ((2048, 512), torch.bfloat16, 16),
        ((2048, 2048), torch.bfloat16, 32),
        ((630, 1591), torch.float16, 32),
        ((64, 96), torch.int8, 32),
        ((64, 80), torch.bfloat16, 16),
        ((37, 43), torch.bfloat16, 16),
        ((64, 96), torch.float32, 16),
    ],
)
def test_a_tile_of_copies_fills_the_registers(
    shape: tuple[int, int], dtype: torch.dtype, side: int, transpositions: list[Transposition]
) -> None:
    x = (torch.randn(shape) * 100).to(dtype)
    compiled = compile_for("halide_backend", turned)
    assert torch.equal(compiled.call(x), turned(x))
    assert not compiled.delegated
    device = device_of(current_target("cpu"))
    if shape == (2048, 512) and device.vendor == "intel":
        side = 32
    if device.vector_registers == 32:
        assert [each.side for each in transpositions] == [side]


def test_what_is_computed_has_smaller_tiles(transpositions: list[Transposition]) -> None:
    x = torch.randn(64, 96).bfloat16()
    compiled = compile_for("halide_backend", lambda x: x.t().contiguous() * 2)
    assert torch.equal(compiled.call(x), turned(x) * 2)
    assert max(each.side for each in transpositions) <= 16


# (batch, tokens, heads, size): few heads make no line, those of all of a batch do.
@pytest.mark.parametrize(
    ("shape", "order", "columns"),
    [
        ((32, 8, 8, 64), (3, 1, 0, 2), 256),
        ((16, 5, 4, 64), (3, 1, 0, 2), 64),
        ((30, 5, 7, 33), (3, 1, 0, 2), 210),
        ((6, 7, 12, 40), (1, 3, 0, 2), 72),
        ((4, 5, 40, 64), (3, 1, 0, 2), 40),
        ((8, 5, 8, 16), (3, 1, 0, 2), 8),
    ],
)
def test_rows_go_on_in_the_next_axis(
    shape: tuple[int, ...], order: tuple[int, ...], columns: int, transpositions: list[Transposition]
) -> None:
    x = torch.randn(shape).bfloat16()
    compiled = compile_for("halide_backend", lambda x: x.permute(order).contiguous())
    assert torch.equal(compiled.call(x), x.permute(order).contiguous())
    assert not compiled.delegated
    if device_of(current_target("cpu")).vector_registers == 32:
        assert f"[({columns}, 1), " in halide_backend.records()[-1].text


@pytest.mark.parametrize("beside", [True, False], ids=["as the rows", "for each head"])
def test_what_is_read_beside_goes_on_like_the_rows(beside: bool) -> None:
    x, y = torch.randn(32, 5, 8, 64), torch.randn(64, 5, 32, 8) if beside else torch.randn(8)
    compiled = compile_for("halide_backend", lambda x, y: x.permute(3, 1, 0, 2).contiguous() * 2 + y)
    torch.testing.assert_close(compiled.call(x, y), x.permute(3, 1, 0, 2) * 2 + y)
    assert not compiled.delegated
    assert ("[(256, 1), " in halide_backend.records()[-1].text) is beside


def test_what_is_computed_leaves_no_registers_for_two_tiles(plans: list[Plan]) -> None:
    x, y = torch.randn(2048, 512).bfloat16(), torch.randn(512, 2048).bfloat16()
    compiled = compile_for("halide_backend", lambda x, y: x.t() + y)
    assert torch.equal(compiled.call(x, y), x.t() + y)
    assert not in_pairs(plans)
