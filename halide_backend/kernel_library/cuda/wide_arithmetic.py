"""Steps of functions of float32 that are computed in float64 on a GPU, where last bits show.

IEEE's quotients and roots of float64 are a dozen instructions and a branch each; a result of 24 bits needs 2**-33, to
which one step of Newton's method leads from the special function unit's. It converts as well, an eighth as fast as a
GPU adds, so that conversions are as few.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.mathematics.floating_point import BINARY64, round_to_integer
from halide_backend.kernel_library.mathematics.polynomial import polynomial
from halide_backend.kernel_library.mathematics.power import EXP2_SERIES, LOG2_SERIES

__all__ = [
    "LOG_SERIES",
    "LOG_SERIES_30",
    "LOG_SERIES_38",
    "exp2",
    "log",
    "odd",
    "quotient",
    "reciprocal",
    "root",
    "whole",
]

_DOUBLE, _WORD, _SIGNED = hl.Float(64), hl.UInt(32), hl.Int(32)

#: log((1 + s) / (1 - s)) / s in s**2.
LOG_SERIES = tuple(coefficient * math.log(2) for coefficient in LOG2_SERIES)

# The same, to 2**-37.8 and 2**-30.4 of it, where the logarithm is not all of a result.
LOG_SERIES_38 = (
    0.23619726213107017,
    0.28534863928166854,
    0.4000038789629563,
    0.6666666522996821,
    2.0000000000085114,
)
LOG_SERIES_30 = (
    0.29927915913880093,
    0.39974704776852504,
    0.6666681683960455,
    1.999999998608331,
)

#: The higher word of 1/sqrt(2) in float64.
_START = 0x3FE6A09E


def log(y: hl.Expr, series: tuple[float, ...] = LOG_SERIES) -> hl.Expr:
    """The logarithm of a normal number of less than 2**1023: of m 2**e, m from 1/sqrt(2) on."""
    low, high = intrinsics.words(y)
    exponent = hl.reinterpret(_SIGNED, high - hl.u32(_START)) >> hl.i32(20)
    m = intrinsics.of_words(_DOUBLE, [low, high - (hl.cast(_WORD, exponent) << hl.u32(20))])
    s = quotient(m - 1, m + 1)
    return whole(exponent) * hl.f64(math.log(2)) + s * polynomial(s * s, series)


def exp2(x: hl.Expr) -> hl.Expr:
    """2**x within 2**-33 of it, |x| < 1000."""
    nearest, k = round_to_integer(x)
    r = x - nearest
    low, high = intrinsics.words(r * polynomial(r, EXP2_SERIES) + 1)
    return intrinsics.of_words(_DOUBLE, [low, high + (hl.cast(_WORD, k) << hl.u32(BINARY64.mantissa - 32))])


def whole(number: hl.Expr) -> hl.Expr:
    """An int32 as float64: an addition, in place of a conversion."""
    low = hl.cast(_WORD, number) ^ hl.u32(1 << 31)
    return intrinsics.of_words(_DOUBLE, [low, hl.u32(0x43300000)]) - hl.f64(2.0**52 + 2.0**31)


def odd(t: hl.Expr, z: hl.Expr, coefficients: tuple[float, ...]) -> hl.Expr:
    """t + t z P(z)."""
    return t * z * polynomial(z, coefficients) + t


def reciprocal(d: hl.Expr) -> hl.Expr:
    """1 / d within 2**-38 of it, d normal."""
    r = intrinsics.rough_reciprocal(d)
    return r + r * (hl.f64(1) - d * r)


def quotient(n: hl.Expr, d: hl.Expr) -> hl.Expr:
    """n / d within 2**-38 of it, d normal."""
    r = intrinsics.rough_reciprocal(d)
    q = n * r
    return q + (n - q * d) * r


def root(z: hl.Expr, steps: int = 1) -> hl.Expr:
    """The square root of a normal number above 0 within 2**-37 of it, or, in two steps, within two last places."""
    r = intrinsics.rough_rsqrt(z)
    s, half = z * r, r * hl.f64(0.5)
    for _ in range(steps):
        s = s + (z - s * s) * half
    return s


def reciprocal_root(z: hl.Expr) -> hl.Expr:
    """1 / sqrt(z) of a normal number above 0 within 2**-36 of it."""
    r = intrinsics.rough_rsqrt(z)
    return r + r * (hl.f64(0.5) - z * hl.f64(0.5) * r * r)
