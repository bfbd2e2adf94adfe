"""sinh, cosh, tanh; coefficients by tests/kernel_library/mathematics/fits.py."""

from __future__ import annotations

import halide as hl

from halide_backend.kernel_library.mathematics.exponential import (
    EXP_64,
    growth_of_remainder,
    reduce_exponential,
    reduce_exponential_exactly,
    unscaled_exponential,
)
from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    BINARY64,
    at_most,
    float_format,
    odd_series,
    power_of_two,
    sum_in_two_parts,
    times_power_of_two,
    with_sign_of,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# (tanh(x) - x) / x**3 in z = x**2, error relative to tanh(x): 2**-27.6 for z <= 1 (P); less TANH_CUBIC 2**-58.2 for
# z <= 0.391 (P/Q).
TANH_32 = (
    -0.00035772984847426414,
    0.0022992007434368134,
    -0.00794366654008627,
    0.02148539572954178,
    -0.053879521787166595,
    0.13332343101501465,
    -0.33333295583724976,
)
TANH_64_P = (7.443680239248998e-08, 0.005988732382473104, 0.13332418456737513, -2.0345052082835287e-05)
TANH_64_Q = (0.017992785539862128, 0.44968014310829324, 1.0)
TANH_CUBIC = -0.33331298828125
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
    """Odd polynomial for |x| < 1, 1 - 2/(exp(2|x|) + 1) beyond."""
    a = hl.abs(x)
    if float_format(x) is BINARY64:
        return with_sign_of(_tanh_64(a), x)
    z = a * a
    small = a * z * polynomial(z, TANH_32) + a
    k, r = reduce_exponential(at_most(a, 22.0) * 2)
    power = power_of_two(k)
    large = hl.f32(1) - hl.f32(2) / (growth_of_remainder(r) * power + (power + 1))
    return with_sign_of(hl.select(a < hl.f32(1), small, large), x)


def _tanh_64(a: hl.Expr) -> hl.Expr:
    """The same for a >= 0, rational for a < 0.625; what the sums before and behind the division lack is put right."""
    z = a * a
    k, coarse, fine = reduce_exponential_exactly(at_most(a, 22.0) * 2)
    r, power = coarse - fine, power_of_two(k)
    total, missing = sum_in_two_parts(power + 1, coarse * power)
    divisor, last = sum_in_two_parts(total, (r * r * polynomial(r, EXP_64) - fine) * power)
    near = a < hl.f64(0.625)
    ratio = hl.select(near, polynomial(z, TANH_64_P), hl.f64(2)) / hl.select(near, polynomial(z, TANH_64_Q), divisor)
    small, small_rest = odd_series(a, TANH_CUBIC, a * z * ratio)
    large = hl.f64(1) - ratio
    large_rest = ((hl.f64(1) - large) - ratio) + ratio * ratio * hl.f64(0.5) * (missing + last)
    return hl.select(near, small, large) + hl.select(near, small_rest, large_rest)


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
