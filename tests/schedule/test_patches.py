"""Operands of reductions that lie apart in memory along the rows: fetched once, in vectors along memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from halide_backend.inspection.compiled import Compiled, compile_for


def patches(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Pixels of 2 x 2 patches, the channels of each in a row, and the statistics of a row."""
    n, c, h, w = x.shape
    pixels = x.reshape(n * c * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(n, c, h * w // 4, 4)
    rows = pixels.transpose(1, 3).reshape(n * 4, h * w // 4, c).contiguous()
    variance, mean = torch.var_mean(rows, -1)
    return rows, variance, mean


def compiled(function: object, *arguments: Tensor) -> tuple[Compiled, str]:
    found = compile_for("halide_backend", function)
    ours, truth = found(*arguments), function(*(each.double() for each in arguments))
    for one, other in zip(ours, truth, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-4)  # sums of 6,272 products
    (code,) = found.codes
    assert code.count("load_kernel(") == 1
    return found, code


def test_patches_are_read_for_a_vector_of_rows() -> None:
    _, code = compiled(patches, torch.randn(2, 45, 32, 32))
    assert "Stage('in_ptr0_0', Role.SHARED" in code
    assert "Vectorize('in_ptr0_0', 'x2_v')" in code and "ComputeAt('in_ptr0_0', 'out_ptr0', 'x2_" in code


def test_patches_that_are_added_to_rows_are_read_for_a_vector_of_them() -> None:
    """Of a sum that several uses share, which is no more work than to load it again."""

    def added(x: Tensor, other: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        n, c, h, w = x.shape
        pixels = x.reshape(n * c * h // 2, 2, w // 2, 2).transpose(1, 2).reshape(n, c, h * w // 4, 4)
        rows = pixels.transpose(1, 3).reshape(n * 4, h * w // 4, c) + other
        variance, mean = torch.var_mean(rows, -1, keepdim=True)
        return (rows - mean) * variance * weight, mean

    _, code = compiled(added, torch.randn(2, 45, 32, 32), torch.randn(8, 256, 45), torch.randn(45))
    assert "Vectorize('in_ptr0_0', 'x1_v')" in code


@pytest.mark.parametrize("width", [6, 34])
def test_patches_of_which_no_vectors_are_whole_are_read_once_a_row(width: int) -> None:
    _, code = compiled(patches, torch.randn(2, 45, 6, width))
    assert "Stage('in_ptr0_0', Role.SHARED" in code and "Vectorize('in_ptr0_0', 'x2_v')" not in code


def test_sums_of_channels_run_along_the_channels() -> None:
    """The gradient of a channels-last group norm: its pixels are rows of as many as there are channels, and the axis
    along which results adjoin is one of those that are reduced."""

    def gradient(g: Tensor, x: Tensor, weight: Tensor, other: Tensor) -> tuple[Tensor, ...]:
        sums, products = g.sum(1), (g * x).sum(1)
        first, second = ((each * weight).sum(1)[:, None, None] for each in (sums, products))
        found = other + g * weight + x * first + second
        return sums, products, found, found * weight

    g, x, other = (torch.randn(2, 49 * 64, 64) for _ in range(3))
    _, code = compiled(gradient, g, x, torch.randn(64) / 3136, other)
    assert "Vectorize('reductions_0', 'x1_v'" in code


@pytest.mark.parametrize("pixels", [3136, 196])
def test_operands_across_are_turned_where_sums_have_a_batch_as_well(pixels: int) -> None:
    def gradient(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        g = g.transpose(1, 2)
        return (g * ((x - mean) * scale)).sum((0, 1)), g.sum((0, 1))

    rows = torch.randn(2, pixels, 1), torch.rand(2, pixels, 1)
    _, code = compiled(gradient, torch.randn(2, 32, pixels), torch.randn(2, pixels, 32), *rows)
    assert "Role.STAGED_LOAD" in code and "Tuple" in code
