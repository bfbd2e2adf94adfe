"""erfc, erfcx and erfinv of float32: rounded from float64, or, for 16 bits, within 2**-16 of what is right ("rough").

Each is a quotient of polynomials for all arguments, or nearly all, so that little is computed for nothing.
Coefficients by tests/kernel_library/mathematics/cuda_fits.py.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import operations as portable
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.polynomial import fused_polynomial, of_multiple
from halide_backend.kernel_library.cuda.wide_arithmetic import (
    LOG_SERIES_30,
    exp2,
    log,
    quotient,
    reciprocal,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial

__all__ = ["erfc", "erfcx", "erfinv", "rough_erfc", "rough_erfcx", "rough_erfinv"]

_SINGLE, _DOUBLE = hl.Float(32), hl.Float(64)

# exp(a**2) erfc(a) on [0, 10.5], relative errors 2**-33.4 and 2**-21.2 (P/Q).
ERFCX_P = (
    0.010119532524749434,
    0.09352229025833797,
    0.4045589455972267,
    1.0042469040903046,
    1.4370840215346439,
    0.9999999999121526,
)
ERFCX_Q = (
    0.017936425603646864,
    0.1657629255724076,
    0.7260519875293973,
    1.8625879444814695,
    2.899062363252609,
    2.5654631768134677,
    1.0,
)
ROUGH_ERFCX_P = (0.0976285030962833, 0.4816707908037385, 1.0281597669814702, 0.9999995839155115)
ROUGH_ERFCX_Q = (0.1730601459805732, 0.8532037539461897, 1.9153519011704767, 2.156510113444617, 1.0)
# a exp(a**2) erfc(a) in 1/a**2, a >= 10, relative error 2**-37.6.
ERFCX_FAR = (
    3.321018765138468,
    -1.054618634318928,
    0.42313081748340536,
    -0.28209477772816083,
    0.5641895835449742,
)
# (1 + 2 a) exp(a**2) erfc(a) in a / (a + 2) of all a >= 0, relative error 2**-20.4.
ROUGH_SCALED_ERFC = (
    -0.2455038902154916,
    1.0632143974533579,
    -1.4734321978306386,
    0.31246082227359673,
    0.3019969594482123,
    1.7139105902173049,
    -3.2876384313767404,
    1.7433724295408666,
    0.9999992891126384,
)
# erfinv(x) / x in -log(1 - x**2) <= 16.7, relative errors 2**-31.5 and 2**-16.8 (P/Q).
ERFINV_P = (
    -5.788344452467144e-07,
    1.6036701007166086e-05,
    0.0005168988985474188,
    0.006718028286131781,
    0.05377332296201289,
    0.28776007597780506,
    0.8862269254090194,
)
ERFINV_Q = (
    -3.4333631482219556e-08,
    -2.2557991605635823e-06,
    0.0001640965688593633,
    0.0012336978688703662,
    0.031176619756971297,
    0.06290309398782573,
    1.0,
)
ROUGH_ERFINV_P = (
    1.0785253461253653e-05,
    0.006158585588303708,
    0.055603778583536496,
    0.3030915419241976,
    0.8862189072205578,
)
ROUGH_ERFINV_Q = (0.0005396655792357342, 0.029153113303957895, 0.08004874869597768, 1.0)

#: From which on erfc is 0, erfcx is a series, and a / (a + 2) is 1.
_LAST, _FAR, _FARTHEST = 10.5, 10, 2.0**60

#: log2(e) of float32, and what it lacks.
_LOG2_E = 1.4426950216293335
_LOG2_E_REST = 1 / math.log(2) - _LOG2_E


def erfc(x: hl.Expr) -> hl.Expr:
    """exp(-a**2) P(a) / Q(a), a = |x|; 2 minus that for negative x."""
    a = hl.cast(_DOUBLE, intrinsics.minimum(portable.abs(x), hl.f32(_LAST)))
    scaled = quotient(polynomial(a, ERFCX_P), polynomial(a, ERFCX_Q))
    tail = scaled * exp2(a * a * hl.f64(-1 / math.log(2)))
    return hl.cast(_SINGLE, hl.select(x < hl.f32(0), hl.f64(2) - tail, tail))


def rough_erfc(x: hl.Expr) -> hl.Expr:
    a = intrinsics.minimum(portable.abs(x), hl.f32(_LAST))
    scaled = fused_polynomial(a, ROUGH_ERFCX_P) * intrinsics.reciprocal_of_normal(fused_polynomial(a, ROUGH_ERFCX_Q))
    tail = scaled * _power_of_e(a, -1)
    return hl.select(x < hl.f32(0), hl.f32(2) - tail, tail)


def erfcx(x: hl.Expr) -> hl.Expr:
    """exp(x**2) erfc(x), or P(1/x**2) / x far away; 2 exp(x**2) - erfcx(-x) for negative x."""
    a = portable.abs(x)
    wide, near = hl.cast(_DOUBLE, a), a < hl.f32(_FAR)
    r = reciprocal(hl.select(near, polynomial(wide, ERFCX_Q), wide))
    scaled = hl.select(near, polynomial(wide, ERFCX_P), polynomial(r * r, ERFCX_FAR)) * r
    bounded = hl.cast(_DOUBLE, intrinsics.minimum(a, hl.f32(_FAR)))
    growth = exp2(hl.f64(1) + bounded * bounded * hl.f64(1 / math.log(2)))
    y = hl.cast(_SINGLE, hl.select(x < hl.f32(0), growth - scaled, scaled))
    # Of infinity the reciprocal is NaN.
    far = hl.select(x < hl.f32(0), hl.f32(math.inf), hl.select(x > hl.f32(0), hl.f32(0), x))
    return hl.select(a < hl.f32(math.inf), y, far)


def rough_erfcx(x: hl.Expr) -> hl.Expr:
    """exp(x**2) erfc(x); 2 exp(x**2) - erfcx(-x) for negative x."""
    scaled = _scaled_erfc(portable.abs(x))
    growth = _power_of_e(intrinsics.minimum(portable.abs(x), hl.f32(_LAST)), 1)
    return hl.select(x < hl.f32(0), growth * hl.f32(2) - scaled, scaled)


def _scaled_erfc(a: hl.Expr) -> hl.Expr:
    """exp(a**2) erfc(a) of a float32 a >= 0."""
    bounded = intrinsics.minimum(a, hl.f32(_FARTHEST))
    t = bounded * intrinsics.reciprocal_of_normal(bounded + hl.f32(2))
    return fused_polynomial(t, ROUGH_SCALED_ERFC) * hl.f32(0.5) * intrinsics.reciprocal_of_normal(a + hl.f32(0.5))


def _power_of_e(a: hl.Expr, factor: float) -> hl.Expr:
    """exp(factor a**2), with what rounding takes from the exponent: a last place of 159 would be 2**-16."""
    square = a * a
    power = square * hl.f32(factor * _LOG2_E)
    rest = intrinsics.fma(square, hl.f32(factor * _LOG2_E), portable.neg(power))
    rest = intrinsics.fma(square, hl.f32(factor * _LOG2_E_REST), rest)
    rest = intrinsics.fma(intrinsics.fma(a, a, portable.neg(square)), hl.f32(factor * _LOG2_E), rest)
    return intrinsics.exp2(power) * intrinsics.fma(rest, hl.f32(math.log(2)), hl.f32(1))


def erfinv(x: hl.Expr) -> hl.Expr:
    """x P(w) / Q(w), w = -log(1 - x**2); +-inf at +-1, NaN beyond."""
    wide = hl.cast(_DOUBLE, x)
    minus_w = log(hl.f64(1) - wide * wide, LOG_SERIES_30)
    above, below = (polynomial(minus_w, of_multiple(part, -1)) for part in (ERFINV_P, ERFINV_Q))
    return _at_edges(x, hl.cast(_SINGLE, wide * quotient(above, below)))


def rough_erfinv(x: hl.Expr) -> hl.Expr:
    logarithm = intrinsics.log2_of_normal(intrinsics.fma(portable.neg(x), x, hl.f32(1)))
    parts = (of_multiple(part, -math.log(2)) for part in (ROUGH_ERFINV_P, ROUGH_ERFINV_Q))
    above, below = (fused_polynomial(logarithm, part) for part in parts)
    return _at_edges(x, x * above * intrinsics.reciprocal_of_normal(below))


def _at_edges(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """`y` between -1 and 1."""
    a = portable.abs(x)
    edge = hl.select(a == hl.f32(1), x * hl.f32(math.inf), hl.f32(math.nan))
    return hl.select(a < hl.f32(1), y, edge)
