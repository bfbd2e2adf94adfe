"""The derivative of digamma: terms of its series (DLMF 5.15.1), an asymptotic series (5.15.8) for what remains, and
reflection (5.15.6) for negative arguments."""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import BINARY32, float_format, quotient
from halide_backend.kernel_library.mathematics.gamma import sin_pi
from halide_backend.kernel_library.mathematics.polynomial import polynomial
from halide_backend.kernel_library.mathematics.trigonometric import sin

#: Terms that are summed one by one.
TERMS = 8
# The Bernoulli numbers B16 to B2.
BERNOULLI = (-3617 / 510, 7 / 6, -691 / 2730, 5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6)


def trigamma(x: hl.Expr) -> hl.Expr:
    """sum of (x + k)**-2 over k >= 0; infinite, or huge (binary32), at the poles.

    torch rounds pi x before it takes the sine. In binary32 that is an error beyond the tolerance of torch's operator
    tests next to a pole, so it is rounded here too (docs/design/why.md).
    """
    f = float_format(x)
    wide = hl.cast(hl.Float(64), x)
    sine = hl.cast(hl.Float(64), sin(x * f.value(math.pi))) if f is BINARY32 else sin_pi(x)
    negative = wide < hl.f64(0)
    a = hl.select(negative, hl.f64(1) - wide, wide)
    total = hl.f64(0)
    for k in range(TERMS - 1, -1, -1):
        total = total + quotient(hl.f64(1), (a + k) * (a + k))
    u = quotient(hl.f64(1), a + TERMS)
    v = u * u
    total = total + (u * v * polynomial(v, BERNOULLI) + v * hl.f64(0.5) + u)
    mirrored = quotient(hl.f64(math.pi**2), sine * sine) - total
    return hl.cast(f.float_type, hl.select(negative, mirrored, total))
