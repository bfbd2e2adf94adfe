"""The gradient of nearest-neighbour upsampling by a whole factor is a sum of blocks, whatever the sizes are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.inspection.compiled import Compiled, compile_for


def gradient(options: dict[str, Any]) -> Callable[[Tensor, Tensor], Tensor]:
    def function(x: Tensor, seed: Tensor) -> Tensor:
        (_, pull) = torch.func.vjp(lambda x: F.interpolate(x, **options), x)
        found: Tensor = pull(seed)[0]
        return found

    return function


def compiled_gradient(options: dict[str, Any]) -> Compiled:
    return compile_for("halide_backend", gradient(options), dynamic=True)


def check(compiled: Compiled, x: Tensor, options: dict[str, Any]) -> None:
    seed = torch.randn(F.interpolate(x, **options).shape, dtype=torch.float64).to(x.dtype)
    exact = gradient(options)(x.double(), seed.double())
    tolerance = 2**-8 if x.dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(compiled(x, seed).double(), exact, rtol=tolerance, atol=tolerance)


def scatters(compiled: Compiled) -> bool:
    """Whether a kernel adds to memory: its name, and the comment above it, say what it was made of."""
    (code,) = compiled.codes
    return "index_put" in code


WHOLE = [
    ((6,), {"scale_factor": 2.0}),
    ((6,), {"scale_factor": 3.0}),
    ((5, 6), {"scale_factor": 2.0}),
    ((5, 6), {"scale_factor": 5.0}),
    ((5, 6), {"scale_factor": (4.0, 2.0)}),
    ((5, 6), {"scale_factor": (1.0, 3.0)}),
    ((4, 5, 6), {"scale_factor": 2.0}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("sizes", "options"), WHOLE, ids=str)
def test_whole_factors(sizes: tuple[int, ...], options: dict[str, Any], dtype: torch.dtype) -> None:
    compiled = compiled_gradient(options)
    for more in (0, 1, 12):
        check(compiled, torch.randn(2 + more, 3, *(size + more for size in sizes)).to(dtype), options)
    assert not scatters(compiled)


@pytest.mark.parametrize(
    "options",
    [{"scale_factor": 1.5}, {"scale_factor": 0.5}, {"scale_factor": 2.0, "mode": "nearest-exact"}],
    ids=str,
)
def test_other_interpolations_are_left_alone(options: dict[str, Any]) -> None:
    compiled = compiled_gradient(options)
    check(compiled, torch.randn(2, 3, 6, 8), options)
    assert scatters(compiled)


def test_sums_into_other_memory_are_left_alone() -> None:
    """What looks like that gradient, but is added to something, or has another index."""

    def function(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        values = torch.stack([x, y], 1).reshape(-1)
        position = torch.arange(values.shape[0])
        half, later = (position * 0.5).long(), (position * 0.5 + 0.5).long().clamp(max=x.shape[0] - 1)
        return (
            torch.ones_like(x).index_put((half,), values, True),
            torch.zeros_like(x).index_put((later,), values, True),
            torch.zeros_like(x).index_put((half,), values, False),
            torch.zeros_like(x).index_put(((position * 0.25).long(),), values, True),
        )

    compiled = compile_for("halide_backend", function, dynamic=True)
    for size in (7, 20):
        x, y = torch.randn(2, size)
        found, expected = compiled(x, y), function(x.double(), y.double())
        for k in (0, 1, 3):
            torch.testing.assert_close(found[k].double(), expected[k], rtol=1e-6, atol=1e-6)
        # Without a sum any of the values may be the last that is stored.
        assert (torch.isclose(found[2], x) | torch.isclose(found[2], y)).all()
