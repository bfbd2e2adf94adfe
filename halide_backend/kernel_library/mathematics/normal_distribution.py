"""The cumulative normal distribution, its logarithm and its inverse, in binary64; binary32 results are those rounded.

ndtr(x) = erfc(-x / sqrt(2)) / 2 (DLMF 7.17): the square in its exponential is that of x, halved, so that the rounding
of the division is not magnified. Coefficients by tests/kernel_library/mathematics/fits.py.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.error_function import (
    CENTER,
    erfc_center,
    erfc_tail,
    erfcx,
    square_in_two_parts,
)
from halide_backend.kernel_library.mathematics.floating_point import at_most, in_binary64, negate
from halide_backend.kernel_library.mathematics.inverse_error_function import (
    erfinv_center,
    root_of_logarithm,
    tail_ratio,
)
from halide_backend.kernel_library.mathematics.logarithm import log, log1p
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# 1 - erfinv(1 - exp(-s**2)) / s in s - 6, s <= 27.4, error 2**-60.9 (P/Q).
FARTHEST_P = (
    6.320890784338404e-17,
    -4.5484417626164546e-14,
    -5.900460532838144e-11,
    4.175148005517683e-09,
    1.342683626937364e-06,
    6.928901857512655e-05,
    0.001367140969365288,
    0.011355856728234625,
    0.03311482749740947,
)
FARTHEST_Q = (
    -2.009141462767891e-11,
    2.6680869544046014e-10,
    5.007119283145251e-07,
    3.827384710419768e-05,
    0.0011754487013065158,
    0.01808637950747678,
    0.14738224887491402,
    0.6078456337110086,
    1.0,
)
ROOT_HALF = math.sqrt(0.5)


@in_binary64
def ndtr(x: hl.Expr) -> hl.Expr:
    """The probability of a standard normal variable below x."""
    lower = _lower_tail(x)
    return hl.select(x > hl.f64(CENTER), hl.f64(1) - lower, lower)


def _lower_tail(x: hl.Expr) -> hl.Expr:
    """ndtr(x) for x <= CENTER, ndtr(-x) beyond."""
    a = at_most(hl.abs(x), 39.0)
    square, rest = square_in_two_parts(a)
    half = hl.f64(0.5)
    tail = erfc_tail(a * hl.f64(ROOT_HALF), square * half, rest * half) * half
    center = erfc_center(negate(x) * hl.f64(ROOT_HALF)) * half
    return hl.select(hl.abs(x) <= hl.f64(CENTER), center, tail)


@in_binary64
def log_ndtr(x: hl.Expr) -> hl.Expr:
    """log(ndtr(x)), by the scaled complement where ndtr underflows."""
    low = log(erfcx(negate(x) * hl.f64(ROOT_HALF)) * hl.f64(0.5)) - x * x * hl.f64(0.5)
    lower = _lower_tail(x)
    high = hl.select(x > hl.f64(CENTER), log1p(negate(lower)), log(lower))
    return hl.select(x < hl.f64(-1), hl.select(x == hl.f64(-math.inf), x, low), high)


@in_binary64
def ndtri(p: hl.Expr) -> hl.Expr:
    """The x with ndtr(x) = p: -inf at 0, inf at 1, NaN outside."""
    distance = p * 2 - 1
    center = erfinv_center(distance)
    # erfc(-x / sqrt(2)) = 2 p; 1 - p is exact from 1/2 on.
    q = hl.select(p < hl.f64(0.5), p, hl.f64(1) - p) * 2
    s, rest = root_of_logarithm(q)
    v = s - hl.f64(6)
    farthest = polynomial(v, FARTHEST_P) / polynomial(v, FARTHEST_Q)
    tail = s - (s * hl.select(s < hl.f64(6), tail_ratio(s), farthest) - rest)
    tail = hl.select(q == hl.f64(0), hl.f64(math.inf), tail)
    tail = hl.select(p < hl.f64(0.5), negate(tail), tail)
    value = hl.select(hl.abs(distance) <= hl.f64(0.75), center, tail)
    inside = (p >= hl.f64(0)) & (p <= hl.f64(1))
    return hl.select(inside, value * hl.f64(math.sqrt(2)), hl.f64(math.nan))
