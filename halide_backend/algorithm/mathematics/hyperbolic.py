"""tanh."""

from __future__ import annotations

import halide as hl

from halide_backend.algorithm.mathematics.exponential import small_exponential
from halide_backend.algorithm.mathematics.floating_point import (
    BINARY32,
    at_most,
    float_format,
    with_sign_of,
)
from halide_backend.algorithm.mathematics.polynomial import polynomial

# (tanh(x) - x) / x**3 in z = x**2 <= 0.391, error relative to tanh(x)/x: 2**-27.8 (P) and 2**-60.6 (P/Q).
TANH_32 = (
    -0.005713347564305998,
    0.020647439842771585,
    -0.053742588295314836,
    0.1333148113420462,
    -0.3333328358529597,
)
TANH_64_P = (-0.00019909081686801214, -0.020496829205033804, -0.33333333333333326)
TANH_64_Q = (0.00020644032464109353, 0.02328870559213139, 0.4614904876150867, 1.0)


def tanh(x: hl.Expr) -> hl.Expr:
    """Odd polynomial for |x| < 0.625, 1 - 2/(exp(2|x|) + 1) beyond."""
    f = float_format(x)
    a = hl.abs(x)
    z = x * x
    if f is BINARY32:
        small = x * z * polynomial(z, TANH_32) + x
    else:
        small = x * z * (polynomial(z, TANH_64_P) / polynomial(z, TANH_64_Q)) + x
    e = small_exponential(at_most(a, 22.0) * 2)
    large = with_sign_of(f.value(1) - f.value(2) / (e + 1), x)
    return hl.select(a < f.value(0.625), small, large)
