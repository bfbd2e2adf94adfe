"""Gradients that are returned in other sizes than they are computed for are written once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.inspection.compiled import compile_for


def gradient(x: Tensor, weight: Tensor, seed: Tensor) -> Tensor:
    _, pull = torch.func.vjp(lambda x: F.group_norm(x, 4, weight, weight), x)
    found: Tensor = pull(seed)[0]
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_group_norms_gradient_is_stored_once(dtype: torch.dtype) -> None:
    compiled = compile_for("halide_backend", gradient, dynamic=True)
    for images, channels, side in ((3, 12, 5), (2, 8, 7), (5, 20, 16)):
        x, seed = (torch.randn(images, channels, side, side, dtype=dtype) for _ in range(2))
        weight = torch.randn(channels, dtype=dtype)
        found = compiled.call(x, weight, seed)
        assert found.shape == x.shape and found.stride() == x.stride()
        tolerance = 1e-4 if dtype is torch.float32 else 0.1
        wanted = gradient(x.double(), weight.double(), seed.double())
        torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    (code,) = compiled.codes
    copies = code.count("out_ptr0[x2, x1, x0] = ops.stored")
    assert copies == 0, "written for (n, 4, c // 4, pixels), and once more for (n, c, height, width)"


def norm(x: Tensor) -> Tensor:
    return F.group_norm(x, 4)


@pytest.mark.parametrize("sizes", [(3, 12, 5, 7), (2, 64, 20, 20)])
def test_a_group_norm_in_channels_last_is_stored_once(sizes: tuple[int, ...]) -> None:
    compiled = compile_for("halide_backend", norm, dynamic=True)
    for shape in (sizes, (2, 8, 7, 9), (5, 20, 16, 3), (1, 4, 1, 2), (0, 8, 3, 3)):
        x = torch.randn(shape).to(memory_format=torch.channels_last)
        found = compiled.call(x)
        assert found.shape == x.shape and (not x.numel() or found.stride() == norm(x).stride())
        torch.testing.assert_close(found, norm(x.double()).float(), rtol=1e-4, atol=1e-4)
    assert compiled.codes[0].count("out_ptr0 = hl.Func") == compiled.codes[0].count("def algorithm")
    assert "memory.transposed" not in compiled.codes[0] and not compiled.delegated


def test_a_view_that_is_a_copy_stays() -> None:
    def function(x: Tensor) -> Tensor:
        return (x.cos() * 2).reshape(x.shape[0], -1, 2)

    compiled = compile_for("halide_backend", function, dynamic=True)
    for shape in ((3, 8, 5, 6), (2, 4, 7, 2)):
        x = torch.randn(shape).to(memory_format=torch.channels_last)
        torch.testing.assert_close(compiled.call(x), function(x))


def views(x: Tensor) -> tuple[Tensor, ...]:
    rows = x.sin().reshape(x.shape[0], x.shape[1] // 2, 2)
    return rows * 2, rows.reshape(-1, x.shape[1]), x.cos().reshape(-1)


def test_other_views_of_what_is_computed_are_right() -> None:
    compiled = compile_for("halide_backend", views, dynamic=True)
    for sizes in ((3, 8), (5, 20)):
        x = torch.randn(sizes)
        for found, wanted in zip(compiled.call(x), views(x.double()), strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
