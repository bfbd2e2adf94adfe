"""lgamma and digamma: those of gamma_64.py, and cheaper ones in binary64 that are rounded to binary32.

For those rational minimax approximations on (0, 3) and [3, 8 or 10), asymptotic series beyond, reflection for negative
arguments; coefficients by tests/kernel_library/mathematics/fits.py. Next to their zeros at negative arguments the
absolute error stays, so the relative error of binary64 grows there; next to the zeros at 1, 2 and 1.46 it does not.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY64,
    float_format,
    in_binary64,
    negate,
    quotient,
)
from halide_backend.kernel_library.mathematics.gamma_64 import digamma_64, digamma_near, lgamma_64
from halide_backend.kernel_library.mathematics.logarithm import log
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# lgamma(1 + y) / (y (y - 1)) in v = y + 0.5 on [0, 2.5], relative error 2**-58.8 (P/Q).
LGAMMA_P = (
    3.629991523917811e-06,
    0.0020645262775670923,
    0.07786454554111205,
    0.9162057254373248,
    4.698803659470764,
    12.157268678119218,
    16.9521895255905,
    12.851611901975717,
    4.965321555913579,
    0.7631532572329335,
)
LGAMMA_Q = (
    0.0005109788070427959,
    0.030889535304689714,
    0.5321078704707125,
    3.8898330971359556,
    14.31103718416217,
    28.874492912319063,
    33.13544523514257,
    21.452893576819914,
    7.270177410285911,
    1.0,
)
# lgamma(3 + t) on [0, 5], relative error 2**-59 (P/Q).
LGAMMA_3_P = (
    8.389061672067162e-08,
    1.556381212450779e-05,
    0.0007162095709237371,
    0.013246849332533145,
    0.1186865288279091,
    0.5552027368319623,
    1.358846139400972,
    1.6029309923330712,
    0.6931471805599453,
)
LGAMMA_3_Q = (
    1.4279693693133226e-08,
    4.086346819103924e-06,
    0.0002552023050128625,
    0.006062693628985083,
    0.06700330804606769,
    0.36918900884158934,
    0.9812442094695688,
    1.0,
)
# x (lgamma(x) - (x - 1/2) log(x) + x - log(2 pi)/2) in 1/x**2, x >= 8: 2**-60.6.
STIRLING = (
    0.005069163730423256,
    -0.0018905379083438783,
    0.0008414728581390222,
    -0.0005952366075018327,
    0.0007936507898391404,
    -0.002777777777774108,
    0.08333333333333333,
)
# sin(pi f) / f in f**2 <= 1/4, relative error 2**-61.8.
SIN_PI = (
    7.694735136478355e-07,
    -2.1903186160483184e-05,
    0.00046629968905455386,
    -0.007370430478817215,
    0.08214588656989832,
    -0.5992645293187385,
    2.550164039877294,
    -5.167712780049969,
    3.141592653589793,
)
# digamma(3 + t) on [0, 7], relative error 2**-62 (P/Q).
DIGAMMA_3_P = (
    3.1223794487942953e-09,
    9.261293197380723e-07,
    6.697240153064907e-05,
    0.0019304242447980163,
    0.026834911790045594,
    0.19458967607023736,
    0.7404394237836691,
    1.3658533847616676,
    0.9227843350984671,
)
DIGAMMA_3_Q = (
    4.305166885169433e-10,
    1.803164785420529e-07,
    1.663683815028753e-05,
    0.0005935156007594011,
    0.010134081894666651,
    0.09082408558299829,
    0.4355962620047095,
    1.0521627654308174,
    1.0,
)
# x**2 (log(x) - 1/(2 x) - digamma(x)) in 1/x**2, x >= 10: 2**-61.
DIGAMMA_SERIES = (
    0.06983020870998731,
    -0.02091588816754962,
    0.007574581208560526,
    -0.004166662615218466,
    0.003968253961583876,
    -0.00833333333332921,
    0.08333333333333333,
)
LOG_ROOT_2_PI = 0.9189385332046728
LOG_PI = 1.1447298858494002


def lgamma(x: hl.Expr) -> hl.Expr:
    """log |gamma(x)|: inf at 0, the negative integers and both infinities."""
    return lgamma_64(x) if float_format(x) is BINARY64 else _lgamma_for_32(x)


@in_binary64
def _lgamma_for_32(x: hl.Expr) -> hl.Expr:
    """lgamma in binary64, its absolute error as small as binary32 needs it."""
    a = hl.abs(x)
    logarithm = log(a)
    y = hl.select(a < hl.f64(0.5), a, a - 1)
    v = y + hl.f64(0.5)
    low = y * (y - 1) * (polynomial(v, LGAMMA_P) / polynomial(v, LGAMMA_Q))
    low = hl.select(a < hl.f64(0.5), low - logarithm, hl.select(y == hl.f64(0), y, low))
    t = a - 3
    middle = polynomial(t, LGAMMA_3_P) / polynomial(t, LGAMMA_3_Q)
    u = quotient(hl.f64(1), a)
    series = u * polynomial(u * u, STIRLING) + hl.f64(LOG_ROOT_2_PI - 0.5)
    high = (a - hl.f64(0.5)) * (logarithm - 1) + series
    positive = hl.select(a < hl.f64(3), low, hl.select(a < hl.f64(8), middle, high))
    sine = hl.abs(sin_pi(a))
    # gamma(x) gamma(-x) = -pi / (x sin(pi x))
    reflected = (hl.f64(LOG_PI) - log(sine * a)) - positive
    reflected = hl.select(sine == hl.f64(0), hl.f64(math.inf), reflected)
    tiny = a < hl.f64(2.0**-60)
    result = hl.select(x < hl.f64(0), hl.select(tiny, negate(logarithm), reflected), positive)
    return hl.select(a < hl.f64(math.inf), result, a)


def sin_pi(x: hl.Expr) -> hl.Expr:
    """sin(pi x), x in binary64, reduced exactly; NaN for infinities."""
    whole = hl.round(x)
    f = x - whole
    s = f * polynomial(f * f, SIN_PI)
    half = whole * hl.f64(0.5)
    return hl.select(hl.floor(half) == half, s, negate(s))


def digamma(x: hl.Expr) -> hl.Expr:
    """The derivative of lgamma; -+inf at +-0, NaN at the negative integers."""
    return digamma_64(x) if float_format(x) is BINARY64 else _digamma_for_32(x)


@in_binary64
def _digamma_for_32(x: hl.Expr) -> hl.Expr:
    """digamma in binary64, its absolute error as small as binary32 needs it."""
    negative = x < hl.f64(0)
    # digamma(x) = digamma(-x) - 1/x - pi / tan(pi x)
    a = hl.abs(x)
    small = a < hl.f64(1)
    t = a - 3
    middle = polynomial(t, DIGAMMA_3_P) / polynomial(t, DIGAMMA_3_Q)
    u = quotient(hl.f64(1), a)
    v = u * u
    high = log(a) - (u * hl.f64(0.5) + v * polynomial(v, DIGAMMA_SERIES))
    # digamma(a), less its -1/a for a < 1
    regular = hl.select(a < hl.f64(3), digamma_near(a), hl.select(a < hl.f64(10), middle, high))
    # pi / tan(pi a) from f = a - round(a) in [-1/2, 1/2]: cos(pi f) = sin(pi (1/2 - |f|))
    f = a - hl.round(a)
    g = hl.f64(0.5) - hl.abs(f)
    sine, cosine = f * polynomial(f * f, SIN_PI), g * polynomial(g * g, SIN_PI)
    reflected = hl.select(small, regular, regular + u) + quotient(cosine * hl.f64(math.pi), sine)
    positive = hl.select(small, regular - u, regular)
    pole = (sine == hl.f64(0)) & negative
    result = hl.select(negative, hl.select(pole, hl.f64(math.nan), reflected), positive)
    return hl.select(x == hl.f64(0), quotient(hl.f64(-1), x), result)
