"""sinh, cosh, tanh; coefficients by tests/algorithm/mathematics/fits.py."""

from __future__ import annotations

import halide as hl

from halide_backend.algorithm.mathematics.exponential import (
    growth_of_remainder,
    reduce_exponential,
    unscaled_exponential,
)
from halide_backend.algorithm.mathematics.floating_point import (
    BINARY32,
    at_most,
    float_format,
    power_of_two,
    times_power_of_two,
    with_sign_of,
)
from halide_backend.algorithm.mathematics.polynomial import polynomial

# (tanh(x) - x) / x**3 in z = x**2, error relative to tanh(x): 2**-27.6 for z <= 1 (P), 2**-60.6 for z <= 0.391 (P/Q).
TANH_32 = (
    -0.00035772984847426414,
    0.0022992007434368134,
    -0.00794366654008627,
    0.02148539572954178,
    -0.053879521787166595,
    0.13332343101501465,
    -0.33333295583724976,
)
TANH_64_P = (-0.00019909081686801214, -0.020496829205033804, -0.33333333333333326)
TANH_64_Q = (0.00020644032464109353, 0.02328870559213139, 0.4614904876150867, 1.0)
# (sinh(x) - x) / x**3 in z = x**2 <= 1, error of sinh 2**-63.
SINH_64 = (
    7.759864718999408e-13,
    1.605722401488418e-10,
    2.5052123581488073e-08,
    2.7557319154372985e-06,
    0.0001984126984144007,
    0.008333333333333137,
    0.16666666666666669,
)
SINH_32 = SINH_64[3:]


def tanh(x: hl.Expr) -> hl.Expr:
    """Odd polynomial for |x| < 1, rational for 0.625 (binary64), 1 - 2/(exp(2|x|) + 1) beyond."""
    f = float_format(x)
    a = hl.abs(x)
    z = a * a
    if f is BINARY32:
        small = a * z * polynomial(z, TANH_32) + a
    else:
        small = a * z * (polynomial(z, TANH_64_P) / polynomial(z, TANH_64_Q)) + a
    k, r = reduce_exponential(at_most(a, 22.0) * 2)
    power = power_of_two(k)
    large = f.value(1) - f.value(2) / (growth_of_remainder(r) * power + (power + 1))
    return with_sign_of(hl.select(a < f.value(1 if f is BINARY32 else 0.625), small, large), x)


def sinh(x: hl.Expr) -> hl.Expr:
    """Odd polynomial for |x| < 1, E - 1/(4 E) with E = exp(|x|)/2 beyond."""
    f = float_format(x)
    a = hl.abs(x)
    z = a * a
    small = a * z * polynomial(z, SINH_32 if f is BINARY32 else SINH_64) + a
    half = _half_exponential(a)
    large = half - f.value(0.25) / half
    return with_sign_of(hl.select(a < f.value(1), small, large), x)


def cosh(x: hl.Expr) -> hl.Expr:
    half = _half_exponential(hl.abs(x))
    return half + float_format(x).value(0.25) / half


def _half_exponential(a: hl.Expr) -> hl.Expr:
    """exp(a)/2 for a >= 0; it overflows only where it must."""
    k, y = unscaled_exponential(at_most(a, 90.0 if float_format(a) is BINARY32 else 711.0))
    return times_power_of_two(y, k - 1)
