"""lgamma and digamma of float32: rounded from float64, or, for 16 bits, within 2**-16 of what is right ("rough").

Next to their zeros at negative arguments it is the absolute error that is so small. Quotients of polynomials up to 3,
Stirling's series (DLMF 5.11.1, 5.11.2) with one reciprocal for both, reflection (5.5.3, 5.5.4).
Coefficients by tests/kernel_library/mathematics/cuda_fits.py.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import operations as portable
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.polynomial import fused_polynomial
from halide_backend.kernel_library.cuda.wide_arithmetic import LOG_SERIES_38, log, quotient, reciprocal
from halide_backend.kernel_library.mathematics.gamma_64 import DIGAMMA_ZERO
from halide_backend.kernel_library.mathematics.polynomial import polynomial

__all__ = ["digamma", "lgamma", "rough_digamma", "rough_lgamma"]

_SINGLE, _DOUBLE = hl.Float(32), hl.Float(64)

# lgamma(1 + y) / (y (y - 1)) on [-1/2, 2], relative errors 2**-33.3 and 2**-20.5 (P/Q).
LGAMMA_P = (
    0.00012176779809305443,
    0.019398482835372304,
    0.23524210843779775,
    0.8680623185368734,
    1.2212672006820384,
    0.5772156649301889,
)
LGAMMA_Q = (
    0.006332125318885263,
    0.14248101995638512,
    0.9061009449903443,
    2.314096183621935,
    2.5406770081092738,
    1.0,
)
ROUGH_LGAMMA_P = (0.0030922077553762286, 0.16745311366500543, 0.6654661627490006, 0.5772160501562063)
ROUGH_LGAMMA_Q = (0.07367068016919602, 0.6912197496487905, 1.5777754669289983, 1.0)
# x (lgamma(x) - (x - 1/2) log(x) + x - log(2 pi)/2) in 1/x**2, x >= 3; error of lgamma 2**-39.4 and 2**-23.6.
STIRLING = (
    0.0004482687112835234,
    -0.0005520966527937006,
    0.0007912184004671547,
    -0.0027777130512193285,
    0.08333333272348978,
)
ROUGH_STIRLING = (-0.0026530564813797204, 0.08332840807358112)
# digamma(1 + y) / (1 + y - zero) on [0, 2], relative errors 2**-35.6 and 2**-22.1 (P/Q).
DIGAMMA_P = (
    0.00015915135595302824,
    0.033213248853790796,
    0.42175695165266563,
    1.3896686205315651,
    1.2503801374798893,
)
DIGAMMA_Q = (
    0.008263485069933206,
    0.1757112475957118,
    0.9624394944197271,
    1.7949437220863385,
    1.0,
)
ROUGH_DIGAMMA_P = (0.10615738700243343, 0.9346183799174679, 1.2503798590411113)
ROUGH_DIGAMMA_Q = (0.02512139954614934, 0.46140491981422077, 1.431000260648123, 1.0)
# x**2 (log(x) - 1/(2 x) - digamma(x)) in 1/x**2, x >= 3; error of digamma 2**-37.6 and 2**-22.9.
SERIES = (
    0.0036530105660623805,
    -0.003765035638467693,
    0.003947049590316621,
    -0.008332810577681246,
    0.08333332887955865,
)
ROUGH_SERIES = (-0.007755536505321727, 0.08331227434735038)
# sin(pi f) / f in f**2 <= 1/4, relative errors 2**-35.5 and 2**-20.0.
SIN_PI_35 = (
    -0.0070220264899765236,
    0.08204640147446789,
    -0.5992513151144663,
    2.550163239174037,
    -5.1677127620881675,
    3.141592653523249,
)
SIN_PI_20 = (-0.5583800839247332, 2.54359972986324, -5.167367388520401, 3.141589696605468)

#: log(2 pi)/2 - 1/2.
_CONSTANT = 0.4189385332046727

#: The zero of digamma less 1, and what the float32 lacks of it.
_ZERO = DIGAMMA_ZERO[0] - 1
_ZERO_32 = 0.46163213253021240
_INFINITE = math.inf


def lgamma(x: hl.Expr) -> hl.Expr:
    """log |gamma(x)|: inf at 0, the negative integers and both infinities."""
    a = portable.abs(x)
    wide = hl.cast(_DOUBLE, a)
    half, small = a < hl.f32(0.5), a < hl.f32(3)
    y = hl.select(half, wide, wide - 1)
    r = reciprocal(hl.select(small, polynomial(y, LGAMMA_Q), wide))
    part = hl.select(small, y * (y - 1) * polynomial(y, LGAMMA_P), polynomial(r * r, STIRLING))
    logarithm = log(wide, LOG_SERIES_38)
    large = (wide - hl.f64(0.5)) * (logarithm - 1) + hl.f64(_CONSTANT)
    # Of a small number that of 1 more.
    regular = part * r + hl.select(small, hl.f64(0), large)
    positive = regular - hl.select(half, logarithm, hl.f64(0))
    value = hl.cast(_SINGLE, hl.select(x < hl.f32(0), intrinsics.reflection(x) - regular, positive))
    return hl.select((a > hl.f32(0)) & (a < hl.f32(_INFINITE)), value, hl.select(a == hl.f32(0), hl.f32(_INFINITE), a))


def rough_lgamma(x: hl.Expr) -> hl.Expr:
    a = portable.abs(x)
    half, small = a < hl.f32(0.5), a < hl.f32(3)
    y = hl.select(half, a, a - hl.f32(1))
    r = intrinsics.reciprocal_of_normal(hl.select(small, fused_polynomial(y, ROUGH_LGAMMA_Q), a))
    near = y * (y - hl.f32(1)) * fused_polynomial(y, ROUGH_LGAMMA_P)
    part = hl.select(small, near, fused_polynomial(r * r, ROUGH_STIRLING))
    logarithm = intrinsics.log2(a) * hl.f32(math.log(2))
    large = intrinsics.fma(a - hl.f32(0.5), logarithm - hl.f32(1), hl.f32(_CONSTANT))
    regular = intrinsics.fma(part, r, hl.select(small, hl.f32(0), large))
    positive = regular - hl.select(half, logarithm, hl.f32(0))
    f = portable.abs(_from_whole(a))
    # A sine of a denormal number would have few bits.
    scale, power = hl.f32(2.0**64), hl.f32(64 * math.log(2) + math.log(math.pi))
    sine = f * hl.select(half, scale, a) * fused_polynomial(f * f, SIN_PI_20)
    power = hl.select(half, power, hl.f32(math.log(math.pi)))
    reflected = intrinsics.fma(intrinsics.log2_of_normal(sine), hl.f32(-math.log(2)), power) - regular
    reflected = hl.select(f == hl.f32(0), hl.f32(_INFINITE), reflected)
    return hl.select(a < hl.f32(_INFINITE), hl.select(x < hl.f32(0), reflected, positive), a)


def digamma(x: hl.Expr) -> hl.Expr:
    """The derivative of lgamma; -+inf at +-0, NaN at the negative integers."""
    a = portable.abs(x)
    wide, f = hl.cast(_DOUBLE, a), hl.cast(_DOUBLE, _from_whole(a))
    negative, small, near = x < hl.f32(0), a < hl.f32(1), a < hl.f32(3)
    y = hl.select(small, wide, wide - 1)
    r = reciprocal(hl.select(near, polynomial(y, DIGAMMA_Q), wide))
    distance = (y - hl.f64(_ZERO)) - hl.f64(DIGAMMA_ZERO[1])
    part = hl.select(near, distance * polynomial(y, DIGAMMA_P), hl.f64(-0.5) - r * polynomial(r * r, SERIES))
    # Of a small number that of 1 more.
    regular = part * r + hl.select(near, hl.f64(0), log(wide, LOG_SERIES_38))
    g = hl.f64(0.5) - portable.abs(f)
    sine, cosine = f * polynomial(f * f, SIN_PI_35), g * polynomial(g * g, SIN_PI_35)
    # Of a negative number pi / tan(pi a), and 1/a if it is not small; of a small positive one -1/a.
    slope = cosine * hl.f64(math.pi)
    above = hl.select(negative, hl.select(small, slope, slope * wide + sine), hl.f64(-1))
    below = hl.select(negative, hl.select(small, sine, sine * wide), wide)
    more = hl.select(negative | small, quotient(above, below), hl.f64(0))
    return _at_edges(x, hl.cast(_SINGLE, regular + more))


def rough_digamma(x: hl.Expr) -> hl.Expr:
    a = portable.abs(x)
    f = _from_whole(a)
    negative, small, near = x < hl.f32(0), a < hl.f32(1), a < hl.f32(3)
    y = hl.select(small, a, a - hl.f32(1))
    r = intrinsics.reciprocal_of_normal(hl.select(near, fused_polynomial(y, ROUGH_DIGAMMA_Q), a))
    distance = (y - hl.f32(_ZERO_32)) - hl.f32(_ZERO - _ZERO_32)
    far = intrinsics.fma(portable.neg(r), fused_polynomial(r * r, ROUGH_SERIES), hl.f32(-0.5))
    part = hl.select(near, distance * fused_polynomial(y, ROUGH_DIGAMMA_P), far)
    logarithm = intrinsics.log2(a) * hl.f32(math.log(2))
    regular = intrinsics.fma(part, r, hl.select(near, hl.f32(0), logarithm))
    g = hl.f32(0.5) - portable.abs(f)
    sine, cosine = f * fused_polynomial(f * f, SIN_PI_20), g * fused_polynomial(g * g, SIN_PI_20)
    slope = cosine * hl.f32(math.pi)
    above = hl.select(negative, hl.select(small, slope, intrinsics.fma(slope, a, sine)), hl.f32(-1))
    below = hl.select(negative, hl.select(small, sine, sine * a), a)
    more = hl.select(negative | small, intrinsics.divide(above, below), hl.f32(0))
    return _at_edges(x, hl.select(negative & (f == hl.f32(0)), hl.f32(math.nan), regular + more))


def _at_edges(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """`y`, digamma of an `x` that is neither 0 nor infinite."""
    infinite = hl.f32(_INFINITE)
    zero = portable.copysign(infinite, portable.neg(x))
    far = hl.select(x < hl.f32(0), hl.f32(math.nan), x)
    return hl.select(x == hl.f32(0), zero, hl.select(portable.abs(x) < infinite, y, far))


def _from_whole(a: hl.Expr) -> hl.Expr:
    """`a` >= 0 less the nearest whole number, exact; all are whole from 2**23 on."""
    step = hl.f32(2.0**23)
    bounded = intrinsics.minimum(a, step)
    return bounded - ((bounded + step) - step)
