"""Sines next to multiples of pi/2, and of vectors whose elements take different reductions."""

from __future__ import annotations

import numpy as np
import pytest
from ulps import errors_in_ulps
from vector_kernel import BLOCK, HOST, WITHOUT_FMA, vector_kernel

from halide_backend.build.target import Target
from halide_backend.kernel_library.mathematics.angle import LARGE_ANGLE_32

TARGETS = {"host": HOST, "avx2": Target.named("avx2"), "without_fma": WITHOUT_FMA}


def _next_to_multiples() -> np.ndarray:
    """The float32 nearest to each multiple of pi/2 that is subtracted at once, and some beyond; and its neighbours."""
    multiples = np.arange(1, int(LARGE_ANGLE_32 * 2 / np.pi) + 1000) * (np.pi / 2)
    nearest = multiples.astype(np.float32)
    return np.concatenate([nearest, np.nextafter(nearest, np.float32(0)), np.nextafter(nearest, np.float32(np.inf))])


def _of_all_exponents(count: int) -> np.ndarray:
    """In an order that mixes small and large ones in each vector; one in four is below the bound in all of them."""
    bits = np.random.default_rng(7).integers(0, 1 << 32, count, dtype=np.uint32)
    values = bits.view(np.float32)
    values[: count // 4] = np.remainder(np.nan_to_num(values[: count // 4], posinf=1, neginf=1), np.float32(2e6))
    return values


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("target", TARGETS)
def test_errors(name: str, target: str) -> None:
    x = np.concatenate([_next_to_multiples(), _of_all_exponents(1 << 20), np.float32([LARGE_ANGLE_32] * BLOCK)])
    x = x[: x.size // BLOCK * BLOCK]
    with np.errstate(invalid="ignore"):
        truth = getattr(np, name)(x.astype(np.float64))
    errors = errors_in_ulps(vector_kernel(name, 1, 32, TARGETS[target])(x), truth)
    worst = int(errors.argmax())
    assert errors[worst] <= 1.6, f"{errors[worst]:.4g} ulps at {x[worst]!r}"
