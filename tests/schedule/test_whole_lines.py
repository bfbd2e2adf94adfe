"""Results of several widths: as many vectors at once as the narrowest one needs for whole lines of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from captured_kernels import captured_kernels
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

UNROLLED = "Split('out_ptr0', 'x0_i_o', 'x0_i_o', 'x0_i_u', {}),"


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 3, (x * 3).bfloat16()


def mask(x: Tensor) -> tuple[Tensor, Tensor]:
    return x > 0, x.relu()


def alike(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 3, x + 1


def text_of(function: Callable[..., Any], target: str, *shape: int, dynamic: bool = False) -> str:
    (kernel,) = captured_kernels(function, (torch.empty(shape),), Target.named(target), dynamic)
    return kernel.text


@pytest.mark.parametrize(
    ("function", "target", "count"), [(halves, "avx512", 2), (mask, "avx512", 4), (halves, "avx2", 4)]
)
def test_as_many_vectors_as_fill_a_line(function: Callable[..., Any], target: str, count: int) -> None:
    text = text_of(function, target, 512, 512)
    assert text.count(UNROLLED.format(count)) == 1 and text.count(f"'x0_i_u', {count})") == 2


def test_results_of_one_width_have_whole_lines_anyway() -> None:
    assert "x0_i_u" not in text_of(alike, "avx512", 512, 512)


@pytest.mark.parametrize(("shape", "dynamic"), [((511, 513), False), ((512, 512), True)])
def test_a_block_that_may_end_earlier_is_left(shape: tuple[int, int], dynamic: bool) -> None:
    """It would have a guard for each vector."""
    assert "x0_i_u" not in text_of(halves, "avx512", *shape, dynamic=dynamic)


@pytest.mark.parametrize("shape", [(512, 512), (511, 513), (64, 1), (3, 5)])
@pytest.mark.parametrize("function", [halves, mask])
def test_results_are_right(function: Callable[..., Any], shape: tuple[int, int]) -> None:
    x = torch.randn(shape)
    compiled = compile_for("halide_backend", function)
    for mine, eager in zip(compiled.call(x), function(x), strict=True):
        assert torch.equal(mine, eager)
    assert not compiled.delegated
