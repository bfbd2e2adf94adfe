"""asinh, acosh, atanh, in binary64; binary32 results are those rounded.

Rational minimax approximations (tests/kernel_library/mathematics/fits.py) where the result is small, logarithms beyond.
"""

from __future__ import annotations

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    head,
    in_binary64,
    with_sign_of,
)
from halide_backend.kernel_library.mathematics.logarithm import log, log_of_sum
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# (asinh(x) - x) / x**3 in z = x**2 <= 1, error of asinh 2**-62.6 (P/Q).
ASINH_P = (
    -2.0095449679865276e-06,
    -0.0010158416500234662,
    -0.020880215718818585,
    -0.13266997698817623,
    -0.34988632084226134,
    -0.4022811718843195,
    -0.1666666666666666,
)
ASINH_Q = (
    0.0014558328431832452,
    0.04380820555971729,
    0.40421612278727864,
    1.615306478156742,
    3.1201199462853615,
    2.863687031305883,
    1.0,
)
# (acosh(1 + t) / sqrt(2 t) - 1) / t on [0, 1], error of the quotient 2**-63 (P/Q).
ACOSH_P = (
    -2.9611771418807557e-07,
    -0.0001557057593046918,
    -0.0039005160658560868,
    -0.029614568357818356,
    -0.08575889014332956,
    -0.0833333333333333,
)
ACOSH_Q = (
    0.00024034095057221986,
    0.00949538127672936,
    0.11399381400855813,
    0.5705845379670759,
    1.2541066817199318,
    1.0,
)
# (atanh(x) - x) / x**3 in z = x**2 <= 0.25, error of atanh 2**-67 (P/Q).
ATANH_P = (
    -7.667173520415789e-05,
    0.020644980175787673,
    -0.20079367885205382,
    0.6264590774029294,
    -0.7771915431710572,
    0.3333333333333333,
)
ATANH_Q = (
    -0.02580165966223584,
    0.3538971739282328,
    -1.6051755917577548,
    3.20975058134513,
    -2.9315746295131695,
    1.0,
)
# Above it a**2 +- 1 is a**2, and a + sqrt(a**2 +- 1) is 2 a.
HUGE = 2.0**28


@in_binary64
def asinh(x: hl.Expr) -> hl.Expr:
    a = hl.abs(x)
    z = x * x
    small = a * z * (polynomial(z, ASINH_P) / polynomial(z, ASINH_Q)) + a
    return with_sign_of(hl.select(a < hl.f64(1), small, _log_of_sum_with_root(a, 1.0)), x)


@in_binary64
def acosh(x: hl.Expr) -> hl.Expr:
    t = x - 1
    root = hl.sqrt(t + t)
    small = root * t * (polynomial(t, ACOSH_P) / polynomial(t, ACOSH_Q)) + root
    return hl.select(x < hl.f64(2), small, _log_of_sum_with_root(x, -1.0))


@in_binary64
def atanh(x: hl.Expr) -> hl.Expr:
    a = hl.abs(x)
    z = x * x
    small = a * z * (polynomial(z, ATANH_P) / polynomial(z, ATANH_Q)) + a
    large = log((a + 1) / (hl.f64(1) - a)) * hl.f64(0.5)
    return with_sign_of(hl.select(a < hl.f64(0.5), small, large), x)


def _log_of_sum_with_root(a: hl.Expr, one: float) -> hl.Expr:
    """log(a + sqrt(a**2 + one)), a >= 1; inf and NaN pass."""
    h = head(a)
    root = hl.sqrt((h * h + hl.f64(one)) + (a - h) * (a + h))
    huge = a > hl.f64(HUGE)
    other = hl.select(huge, a, root)
    # For inf the low part would be inf - inf.
    total = a + other
    low = hl.select(huge, hl.f64(0), (a - total) + other)
    half = hl.f64(0.5)
    return log_of_sum(hl.select(huge, a, total * half), low * half, exponent=1)
