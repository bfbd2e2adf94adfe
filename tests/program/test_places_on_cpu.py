"""On a CPU, too, places of an interpolation are int32, where they are known to fit."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend.inspection.compiled import compile_for


def conversions(function: Callable[[Tensor], Tensor], x: Tensor, *, dynamic: bool = False) -> set[str]:
    """What coordinates are converted to, in the kernels of `function`, whose values are eager's."""
    halide_backend.reset_stats()
    found = compile_for("halide_backend", function, options={}, dynamic=dynamic)(x)
    torch.testing.assert_close(found, function(x))
    text = "".join(record.text for record in halide_backend.records())
    return {to for to in ("int32", "int64") if f"ops.to_dtype('float32', '{to}'" in text}


@pytest.mark.parametrize("mode", ["nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(9, 11), (31, 45)])
def test_an_interpolation(mode: str, size: tuple[int, int]) -> None:
    assert conversions(lambda x: F.interpolate(x, size=size, mode=mode), torch.randn(2, 3, 20, 24)) == {"int32"}


@pytest.mark.parametrize("factor", [1e8, -1e8, 3e9])
def test_what_may_not_fit_stays_wide(factor: float) -> None:
    """x86 converts what is too large to the smallest int32, of which the clamp would make the other end."""

    def clamped(x: Tensor) -> Tensor:
        return x[(torch.arange(30) * factor).long().clamp(-3, 5)]

    assert conversions(clamped, torch.randn(9)) == {"int64"}


def test_factors_of_dynamic_sizes_are_not_known() -> None:
    x = torch.randn(2, 3, 20, 24)
    assert conversions(lambda x: F.interpolate(x, scale_factor=0.4, mode="bilinear"), x, dynamic=True) == {"int64"}
