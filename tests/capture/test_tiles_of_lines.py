"""Tiles of 16-bit elements that are turned: rows that share a place of a cache are stored a line at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from halide_backend import pipeline
from halide_backend.inspection.compiled import compile_for
from halide_backend.pipeline import current_target
from halide_backend.schedule.device import device_of
from halide_backend.schedules.choice import ScheduledKernel

PAIR = "Split('out_ptr0', 'x1_o', 'x1_o', 'x1_p', 2)"


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    whole = pipeline.schedule_kernel

    def kept(*arguments: Any) -> ScheduledKernel:
        scheduled = whole(*arguments)
        found.append(scheduled.kernel.text)
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_kernel", kept)
    return found


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
def test_whole_lines_are_stored(shape: tuple[int, int], dtype: torch.dtype, pair: bool, texts: list[str]) -> None:
    x = (torch.randn(shape) * 100).to(dtype)
    compiled = compile_for("halide_backend", turned)
    assert torch.equal(compiled.call(x), turned(x))
    assert not compiled.delegated
    if device_of(current_target("cpu")).vector_registers == 16:
        # Two tiles of AVX2 fit into its registers where a row has eight elements, half a line of float32.
        pair = dtype is torch.float32 and shape == (2048, 512)
    assert (PAIR in "".join(texts)) == pair


def test_what_is_computed_leaves_no_registers_for_two_tiles(texts: list[str]) -> None:
    x, y = torch.randn(2048, 512).bfloat16(), torch.randn(512, 2048).bfloat16()
    compiled = compile_for("halide_backend", lambda x, y: x.t() + y)
    assert torch.equal(compiled.call(x, y), x.t() + y)
    assert PAIR not in "".join(texts)
