"""The special functions through the whole backend: types, gradients, argument order and constants."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import pytest
import torch

UNARY = (
    *("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "i0", "i0e", "i1", "i1e", "log_ndtr"),
    *("modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "ndtr", "ndtri"),
    *("scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0"),
)
DIFFERENTIABLE = {"i0", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri"}
DEGREES = tuple(f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_") for kind in "tuvw")
#: torch's float64 values of these are right to 1e-5 only: mpmath says so (tests/algorithm/mathematics).
ROUGH = {"airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1"}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.int64: 2e-5}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_of_one_argument(check: Callable[..., object], name: str, dtype: torch.dtype) -> None:
    x = torch.rand(100, dtype=torch.float64) if name == "ndtri" else torch.linspace(-9, 9, 100, dtype=torch.float64)
    x = x.to(dtype).requires_grad_(name in DIFFERENTIABLE and dtype.is_floating_point)
    tolerance = 2e-5 if name in ROUGH else TOLERANCE[dtype]
    check(lambda x: getattr(torch.special, name)(x), x, tolerance=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", DEGREES)
def test_polynomials_with_degrees_from_data(check: Callable[..., object], name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-1.5, 1.5, 60, dtype=dtype)[:, None]
    n = torch.arange(-2, 20, dtype=dtype) + 0.25
    check(lambda x, n: getattr(torch.special, name)(x, n), x, n, tolerance=TOLERANCE[dtype] * 10)


@pytest.mark.parametrize("name", DEGREES)
def test_polynomials_of_one_degree(check: Callable[..., object], name: str) -> None:
    check(lambda x: getattr(torch.special, name)(x, 5), torch.linspace(-1.5, 1.5, 60), tolerance=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_zeta(check: Callable[..., object], dtype: torch.dtype) -> None:
    s = torch.tensor([0.5, 1.0, 1.5, 2.0, 3.0, 7.5, 20.0, math.nan], dtype=dtype)[:, None]
    q = torch.tensor([-7.25, -3.0, -0.1, 0.0, 0.3, 1.0, 5.5, 1e3, math.nan], dtype=dtype)
    check(torch.special.zeta, s, q, tolerance=TOLERANCE[dtype])


@pytest.mark.parametrize("order", [0, 1, 2, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_polygamma(check: Callable[..., object], dtype: torch.dtype, order: int) -> None:
    x = torch.tensor([-4.5, -2.25, -0.6, 0.2, 1.0, 3.5, 40.0], dtype=dtype, requires_grad=True)
    check(lambda x: torch.polygamma(order, x), x, tolerance=max(2e-5, TOLERANCE[dtype]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_nextafter_and_ldexp(check: Callable[..., object], dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, 1e-7, -2.5, 6e4, math.inf, -math.inf, math.nan], dtype=dtype)
    y = x.flip(0)[:, None]
    check(torch.nextafter, x, y, tolerance=0)
    check(torch.ldexp, x, torch.tensor([-20, -3, 0, 2], dtype=torch.int32)[:, None], tolerance=0)


@pytest.mark.parametrize("reduce", [torch.amax, torch.argmin])
def test_an_expensive_operand_of_a_maximum_is_written_once(check: Callable[..., object], reduce: Callable) -> None:
    """An order key looks at its argument five times; this took 18 seconds to compile (fuzzer seed 10053)."""
    x, y = torch.rand(20, 1, dtype=torch.float64) + 0.1, torch.rand(1, 30, dtype=torch.float64) + 0.1
    start = time.monotonic()
    check(lambda x, y: reduce(x**y + torch.logaddexp(x, y), 0), x, y)
    assert time.monotonic() - start < 9
