"""Functions of float32 for results that are rounded to 16 bits: within 2**-16 of what is right, without float64.

The special function unit has the logarithm and the root in them, and none has a branch.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import operations as portable
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.logarithm import rough_log1p
from halide_backend.kernel_library.cuda.polynomial import fused_polynomial
from halide_backend.kernel_library.mathematics.inverse_trigonometric import ASIN_32, ATAN_32
from halide_backend.kernel_library.mathematics.trigonometric import sine_and_cosine_of

__all__ = [
    "rough_acos",
    "rough_acosh",
    "rough_asin",
    "rough_asinh",
    "rough_atan",
    "rough_atanh",
    "rough_cosh",
    "rough_sinh",
    "rough_tan",
]

#: From which on log(2 x) is asinh(x) and acosh(x): their squares would become infinite.
_LARGE = 2.0**14


def rough_asinh(x: hl.Expr) -> hl.Expr:
    """log(1 + a + a**2 / (1 + sqrt(a**2 + 1))) with the sign of x, a = |x|."""
    a = portable.abs(x)
    square = a * a
    near = rough_log1p(
        a + square * intrinsics.reciprocal_of_normal(intrinsics.sqrt_of_normal(square + hl.f32(1)) + hl.f32(1))
    )
    return portable.copysign(hl.select(a > hl.f32(_LARGE), _log_of_twice(a), near), x)


def rough_acosh(x: hl.Expr) -> hl.Expr:
    """log(1 + t + sqrt(t (t + 2))), t = x - 1; NaN below 1."""
    t = x - hl.f32(1)
    near = rough_log1p(t + intrinsics.sqrt_of_normal(t * (t + hl.f32(2))))
    return hl.select(x < hl.f32(1), hl.f32(math.nan), hl.select(x > hl.f32(_LARGE), _log_of_twice(x), near))


def rough_atanh(x: hl.Expr) -> hl.Expr:
    """log(1 + 2 a / (1 - a)) / 2 with the sign of x, a = |x|; NaN beyond 1."""
    a = intrinsics.minimum(portable.abs(x), hl.f32(2))
    return portable.copysign(rough_log1p((a + a) * intrinsics.reciprocal_of_normal(hl.f32(1) - a)) * hl.f32(0.5), x)


def rough_atan(x: hl.Expr) -> hl.Expr:
    """A polynomial of |x|, or pi/2 less that of 1 / |x|, with the sign of x."""
    a = portable.abs(x)
    steep = a > hl.f32(1)
    angle = _odd(hl.select(steep, intrinsics.reciprocal_of_normal(a), a), ATAN_32)
    return portable.copysign(hl.select(steep, hl.f32(math.pi / 2) - angle, angle), x)


def rough_asin(x: hl.Expr) -> hl.Expr:
    outer, arc = _arc(x)
    return portable.copysign(hl.select(outer, hl.f32(math.pi / 2) - (arc + arc), arc), x)


def rough_acos(x: hl.Expr) -> hl.Expr:
    outer, arc = _arc(x)
    far = hl.select(x < hl.f32(0), hl.f32(math.pi) - (arc + arc), arc + arc)
    return hl.select(outer, far, hl.f32(math.pi / 2) - portable.copysign(arc, x))


def rough_tan(x: hl.Expr) -> hl.Expr:
    """sine / cosine, or -cosine / sine in the odd quadrants; NaN for infinities."""
    quadrant, r = intrinsics.angle(portable.abs(x))
    sine, cosine = sine_and_cosine_of(r)
    odd = (quadrant & hl.u32(1)) != hl.u32(0)
    over, under = hl.select(odd, portable.neg(cosine), sine), hl.select(odd, sine, cosine)
    tangent = over * intrinsics.reciprocal_of_normal(under)
    signed = hl.select(hl.reinterpret(hl.Int(32), x) < hl.i32(0), portable.neg(tangent), tangent)
    return hl.select(portable.abs(x) < hl.f32(math.inf), signed, hl.f32(math.nan))


def rough_sinh(x: hl.Expr) -> hl.Expr:
    """(e - 1/e) / 2, e = exp(|x|), with the sign of x, or three terms of its series."""
    a = portable.abs(x)
    half, other = _halves(a)
    near = _odd(a, (1 / 120, 1 / 6))
    return portable.copysign(hl.select(a < hl.f32(0.5), near, half - other), x)


def rough_cosh(x: hl.Expr) -> hl.Expr:
    half, other = _halves(portable.abs(x))
    return half + other


def _halves(a: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """exp(a) / 2, which overflows where a sum of both does, and exp(-a) / 2, a >= 0."""
    half = intrinsics.exp2_of_normal(intrinsics.fma(a, hl.f32(1 / math.log(2)), hl.f32(-1)))
    return half, intrinsics.reciprocal_of_normal(half) * hl.f32(0.25)


def _log_of_twice(a: hl.Expr) -> hl.Expr:
    return intrinsics.fma(intrinsics.log2_of_normal(a), hl.f32(math.log(2)), hl.f32(math.log(2)))


def _arc(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """Whether |x| > 0.5, and asin(|x|), or asin(sqrt((1 - |x|) / 2)) then."""
    a = portable.abs(x)
    outer = a > hl.f32(0.5)
    s = hl.select(outer, intrinsics.sqrt_of_normal((hl.f32(1) - a) * hl.f32(0.5)), a)
    return outer, _odd(s, ASIN_32)


def _odd(t: hl.Expr, coefficients: tuple[float, ...]) -> hl.Expr:
    """t + t**3 P(t**2)."""
    z = t * t
    return intrinsics.fma(t * z, fused_polynomial(z, coefficients), t)
