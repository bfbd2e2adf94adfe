"""Inverse functions and the tangent of float32, rounded from float64 as on a CPU, without a branch."""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import operations as portable
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.wide_arithmetic import LOG_SERIES, log, odd, quotient, reciprocal, root, whole
from halide_backend.kernel_library.mathematics.inverse_trigonometric import ASIN_32, ATAN_32
from halide_backend.kernel_library.mathematics.polynomial import polynomial
from halide_backend.kernel_library.mathematics.trigonometric import TAN_32_P, TAN_32_Q

__all__ = ["acos", "acosh", "asin", "asinh", "atan", "atanh", "tan"]

_SINGLE, _DOUBLE, _WORD, _SIGNED = hl.Float(32), hl.Float(64), hl.UInt(32), hl.Int(32)

#: The higher word of 1 in float64, and bits of 1/sqrt(2) in float32.
_ONE, _START_32 = 0x3FF00000, 0x3F3504F3

#: From which on 1 / x shows nowhere in an angle; up to which asinh(x) is x.
_STEEPEST, _STRAIGHT = 2.0**100, 2.0**-17


def atan(x: hl.Expr) -> hl.Expr:
    """A polynomial of |x|, or pi/2 less that of 1 / |x|, with the sign of x."""
    a = intrinsics.minimum(portable.abs(x), hl.f32(_STEEPEST))
    steep, wide = a > hl.f32(1), hl.cast(_DOUBLE, a)
    t = hl.select(steep, reciprocal(wide), wide)
    angle = odd(t, t * t, ATAN_32)
    return portable.copysign(hl.cast(_SINGLE, hl.select(steep, hl.f64(math.pi / 2) - angle, angle)), x)


def asin(x: hl.Expr) -> hl.Expr:
    outer, arc = _arc(x)
    return portable.copysign(hl.cast(_SINGLE, hl.select(outer, hl.f64(math.pi / 2) - arc * 2, arc)), x)


def acos(x: hl.Expr) -> hl.Expr:
    outer, arc = _arc(x)
    left = x < hl.f32(0)
    far = hl.select(left, hl.f64(math.pi) - arc * 2, arc * 2)
    near = hl.f64(math.pi / 2) - hl.select(left, portable.neg(arc), arc)
    return hl.select(x == hl.f32(1), hl.f32(0), hl.cast(_SINGLE, hl.select(outer, far, near)))


def _arc(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """Whether |x| > 0.5, and asin(|x|), or asin(sqrt((1 - |x|) / 2)) then, of 1 some number next to 0."""
    a = portable.abs(x)
    outer = a > hl.f32(0.5)
    half = (hl.f32(1) - a) * hl.f32(0.5)  # Exact.
    half = hl.select(half == hl.f32(0), hl.f32(2.0**-100), half)
    c = hl.cast(_DOUBLE, hl.select(outer, half, a))
    z = hl.select(outer, c, c * c)
    return outer, odd(hl.select(outer, root(c), c), z, ASIN_32)


def asinh(x: hl.Expr) -> hl.Expr:
    """log(a + sqrt(a**2 + 1)) with the sign of x, a = |x|."""
    a = portable.abs(x)
    wide = hl.cast(_DOUBLE, a)
    y = hl.cast(_SINGLE, log(wide + root(wide * wide + 1, steps=2)))
    return hl.select((a > hl.f32(_STRAIGHT)) & (a < hl.f32(math.inf)), portable.copysign(y, x), x)


def acosh(x: hl.Expr) -> hl.Expr:
    """log(x + sqrt((x - 1) (x + 1))); NaN below 1."""
    wide = hl.cast(_DOUBLE, x)
    t = wide - 1
    y = hl.cast(_SINGLE, log(wide + root(t * t + (t + t))))
    y = hl.select(x < hl.f32(math.inf), y, x)
    return hl.select(x > hl.f32(1), y, hl.select(x == hl.f32(1), hl.f32(0), hl.f32(math.nan)))


def atanh(x: hl.Expr) -> hl.Expr:
    """log((1 + a) / (1 - a)) / 2 with the sign of x, a = |x|; NaN beyond 1.

    With n = 1 + a and d = p (1 - a), p = 2**e, the quotient is p (1 + s) / (1 - s), s = (n - d) / (n + d). If p is 1, s
    is a, whatever its size.
    """
    a = portable.abs(x)
    wide = hl.cast(_DOUBLE, a)
    about = (hl.f32(1) + a) * intrinsics.reciprocal_of_normal(hl.f32(1) - a)
    exponent = (hl.reinterpret(_SIGNED, about) - hl.i32(_START_32)) >> hl.i32(23)
    power = intrinsics.of_words(_DOUBLE, [hl.u32(0), hl.u32(_ONE) + (hl.cast(_WORD, exponent) << hl.u32(20))])
    more, less = power + 1, hl.f64(1) - power
    s = quotient(wide * more + less, wide * less + more)
    y = (whole(exponent) * hl.f64(math.log(2)) + s * polynomial(s * s, LOG_SERIES)) * hl.f64(0.5)
    edge = hl.select(a == hl.f32(1), hl.f32(math.inf), hl.f32(math.nan))
    return portable.copysign(hl.select(a < hl.f32(1), hl.cast(_SINGLE, y), edge), x)


def tan(x: hl.Expr) -> hl.Expr:
    """sine / cosine, or -cosine / sine in the odd quadrants; NaN for infinities."""
    r = intrinsics.wide_angle(portable.abs(x))
    turned = (intrinsics.words(r)[0] & hl.u32(1)) != hl.u32(0)
    z = r * r
    sine, cosine = r * polynomial(z, TAN_32_P), polynomial(z, TAN_32_Q)
    over, under = hl.select(turned, portable.neg(cosine), sine), hl.select(turned, sine, cosine)
    y = hl.cast(_SINGLE, quotient(over, under))
    signed = hl.select(hl.reinterpret(_SIGNED, x) < hl.i32(0), portable.neg(y), y)
    return hl.select(portable.abs(x) < hl.f32(math.inf), signed, hl.f32(math.nan))
