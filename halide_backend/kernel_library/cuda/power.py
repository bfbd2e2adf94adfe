"""pow of float32, in float64 as on a CPU, with fewer instructions for what is special.

A GPU has half as many units for float64 as for float32, and one for eight conversions between them: what needs no
float64 (bounds, zero, infinity, NaN, the sign) is decided on the words that the numbers are made of.
"""

from __future__ import annotations

import math
import struct

import halide as hl

from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.wide_arithmetic import exp2
from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    from_bits,
    is_nan,
    magnitude_bits,
    sign_bits,
    split_exponent,
    to_bits,
    without_bounds,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial
from halide_backend.kernel_library.mathematics.power import LOG2_SERIES

__all__ = ["pow", "power_of_number"]

_SINGLE, _DOUBLE, _WORD = hl.Float(32), hl.Float(64), hl.UInt(32)

#: Powers of two between which all of float32 lies: the higher words of their exponents in float64.
_LARGEST, _SMALLEST = 0x40618000, 0xC0640000  # 140, -160

#: About the root of 1/2, with a lower word of zeros, which no carry leaves.
_START = struct.unpack("<d", struct.pack("<Q", 0x3FE6A09E << 32))[0]


def pow(base: hl.Expr, exponent: hl.Expr) -> hl.Expr:
    """base**exponent with every special case of C99: 1**NaN = NaN**0 = 1, (-1)**inf = 1, negative with integers."""
    x, y = without_bounds(base), without_bounds(exponent)
    one, zero, infinity = hl.f32(1), hl.f32(0), hl.u32(BINARY32.infinity)
    bits = magnitude_bits(x)
    a = from_bits(bits)
    size = _power_of_two(hl.cast(_DOUBLE, y) * _log2(hl.cast(_DOUBLE, a)))
    # Zero, infinity and NaN are themselves, or their reciprocal, whose bits are those of infinity less theirs.
    extreme = bits - hl.u32(1) >= infinity - hl.u32(1)
    size = hl.select(extreme, hl.select(y < zero, from_bits(infinity - bits), a), size)
    size = hl.select((a == one) | (y == zero), one, size)
    # Exact: 1 of an odd number, 0 of an even one; NaN of infinity.
    b = from_bits(magnitude_bits(y))
    rest = intrinsics.fma(hl.f32(-2), hl.trunc(b * hl.f32(0.5)), b)
    signed = from_bits(to_bits(size) | hl.select(rest == one, sign_bits(x), hl.u32(0)))
    between = (rest != zero) & (rest != one) & (b < hl.f32(math.inf))
    signed = hl.select(between & (x < zero) & hl.logical_not(extreme), hl.f32(math.nan), signed)
    return hl.select(is_nan(y) & (x != one), y, signed)


def power_of_number(base: float, exponent: hl.Expr) -> hl.Expr:
    """A power of a finite `base` above 0 that is not 1: without the division that a logarithm takes."""
    y = without_bounds(exponent)
    return hl.select(is_nan(y), y, _power_of_two(hl.cast(_DOUBLE, y) * hl.f64(math.log2(base))))


def _log2(wide: hl.Expr) -> hl.Expr:
    m, e = split_exponent(wide, _START)
    s = _divided(m - 1, m + 1)
    return s * polynomial(s * s, LOG2_SERIES) + e


def _divided(n: hl.Expr, d: hl.Expr) -> hl.Expr:
    """n / d in float64 with twice the bits of a float32's reciprocal: IEEE's quotient takes twice the instructions, and
    a branch."""
    reciprocal = hl.cast(_DOUBLE, intrinsics.reciprocal_of_normal(hl.cast(_SINGLE, d)))
    quotient = n * reciprocal
    return quotient + (n - quotient * d) * reciprocal


def _power_of_two(x: hl.Expr) -> hl.Expr:
    """2**x, x in float64, as float32; some number if x is NaN."""
    low, high = intrinsics.words(x)
    # Signed, negative numbers are below all others; unsigned, they are above, the larger the higher.
    high = hl.reinterpret(_WORD, hl.min(hl.reinterpret(hl.Int(32), high), hl.i32(_LARGEST)))
    bounded = intrinsics.of_words(_DOUBLE, [low, hl.min(high, hl.u32(_SMALLEST))])
    return hl.cast(_SINGLE, exp2(bounded))
