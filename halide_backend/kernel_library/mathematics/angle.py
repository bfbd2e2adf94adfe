"""Argument reduction of the circular functions: x = (pi/2) (quadrant + 4 n) + r, |r| <= pi/4, for every finite x.

Payne and Hanek (1983): of 2/pi only the bits that can reach the answer modulo 4 are multiplied. binary32 does it with
products of binary64 that are exact by construction, binary64 with integers of 32 x 32 bits.
"""

from __future__ import annotations

import itertools
import math

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    BINARY64,
    from_bits,
    head,
    magnitude_bits,
    round_to_integer,
    to_bits,
)

# floor(2/pi * 2**1216)
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424d"
    "d2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639"
    "835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f46"
    "3f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6bab",
    16,
)
TWO_OVER_PI_BITS = 1216
# pi/2: a head of 26 bits and the rest.
HALF_PI = (1.5707963109016418, 1.5893254773528196e-08)
# A head of 33 bits, which times a whole number below 2**20 is exact in binary64, and the rest.
HALF_PI_33 = (1.5707963267341256, 6.077100506506192e-11)
# Three binary32, whose sum is pi/2 to 2**-76.
HALF_PI_32 = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
# Up to this a product with 2/pi in binary32 is wrong by less than 2**-8, and a product with the last part of pi/2 by
# less than 2**-57. Beyond this all bits of 2/pi are looked at. `build/llvm/rare_ranges.py` knows the number.
LARGE_ANGLE_32 = 2.0**17


def _bits_of_two_over_pi(start: int, count: int) -> int:
    """`count` bits from the one of weight 2**-(start + 1) on; bits before the point are zero."""
    return (TWO_OVER_PI >> (TWO_OVER_PI_BITS - start - count)) & ((1 << count) - 1)


def _segments(dropped: int) -> tuple[float, float, float]:
    """2/pi without its first `dropped` bits, as a sum of 29, 29 and 53 bits."""
    starts = (dropped, dropped + 29, dropped + 58)
    counts = (29, 29, 53)
    a, b, c = (math.ldexp(_bits_of_two_over_pi(s, n), -s - n) for s, n in zip(starts, counts, strict=True))
    return a, b, c


def reduce_angle_single(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(quadrant in the low 2 bits of a UInt(32), r in binary32) of a binary32 x >= 0.

    Up to LARGE_ANGLE_32 the nearest multiple of pi/2 is subtracted in parts (Cody and Waite).
    """
    word, single = hl.UInt(32), hl.Float(32)
    # The features are the processor's, and say nothing of a GPU.
    has_fma = hl.target_has_feature(hl.TargetFeature.FMA) & ~hl.target_has_feature(hl.TargetFeature.CUDA)
    small = zip(_angle_in_singles(x), _angle_in_doubles(x), strict=True)
    quadrant, r = (hl.select(has_fma, fused, wide) for fused, wide in small)
    large_quadrant, large_r = reduce_angle_32(x)
    large = x > hl.f32(LARGE_ANGLE_32)
    return (
        hl.select(large, hl.cast(word, large_quadrant), quadrant),
        hl.select(large, hl.cast(single, large_r), r),
    )


def _angle_in_singles(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """In binary32, where a product and a sum are rounded once: the first difference is exact, the other two are rounded
    to their own size, also next to a multiple, and what is left of pi/2 is below 2**-76."""
    offset = hl.f32(BINARY32.integer_offset)
    shifted = x * hl.f32(2 / math.pi) + offset
    whole = shifted - offset
    for part in HALF_PI_32:
        x = x - whole * hl.f32(part)
    return to_bits(shifted), x  # the offset has no low bits


def _angle_in_doubles(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """In binary64: the first part is exact, the second wrong by 2**-66; no binary32 up to LARGE_ANGLE_32 comes nearer
    than 2**-28 to a multiple."""
    wide = hl.cast(hl.Float(64), x)
    whole, quadrant = round_to_integer(wide * hl.f64(2 / math.pi))
    first, second = (hl.f64(part) for part in HALF_PI_33)
    return hl.cast(hl.UInt(32), quadrant), hl.cast(hl.Float(32), (wide - whole * first) - whole * second)


def reduce_angle_32(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(quadrant in the low 2 bits of a UInt(64), r in binary64) of a binary32 x, widened.

    Five ranges of |x|, each with the segments of 2/pi that matter there: a number >= 2**b is a multiple of 2**(b-23),
    so bits of weight 2**(25-b) and above add a multiple of 4. A segment of 29 bits times x's 24 is exact.
    """
    wide = hl.cast(hl.Float(64), x)
    bounds = (28, 53, 78, 103)
    a, b, c = (hl.f64(s) for s in _segments(0))
    for bound in bounds:
        above = hl.abs(wide) >= hl.f64(2.0**bound)
        later = _segments(bound - 25)
        a, b, c = (hl.select(above, hl.f64(s), t) for s, t in zip(later, (a, b, c), strict=True))
    product = wide * a
    whole, quadrant = round_to_integer(product)
    rest = (product - whole) + wide * b
    carry, more = round_to_integer(rest)
    turns = (rest - carry) + wide * c
    return quadrant + more, turns * hl.f64(math.pi / 2)


def reduce_angle_64(x: hl.Expr) -> tuple[hl.Expr, hl.Expr, hl.Expr]:
    """(quadrant in the low 2 bits of a UInt(64), r, low part of r) of |x|, x binary64.

    |x| = M 2**E. The 192 bits of 2/pi from weight 2**(1-E) down, times M, modulo 2**192, are |x| 2/pi modulo 4 with an
    error below 2**-137; no double comes nearer than 2**-62 to a multiple of pi/2.
    """
    low32 = hl.u64(0xFFFFFFFF)
    bits = magnitude_bits(x)
    exponent = bits >> hl.u64(52)
    m = (bits & hl.u64((1 << 52) - 1)) | hl.u64(1 << 52)
    m_high, m_low = m >> hl.u64(32), m & low32
    # E = exponent - 1075 >= -53 where |x| > pi/4; the words start 64 bits before the point.
    position = exponent - hl.u64(1075 + 2 - 64)
    window = _window(position >> hl.u64(6))
    shift = position & hl.u64(63)
    # A shift by 64 is undefined: the bits of the next word come by 1 and 63 - shift.
    aligned = [
        (word << shift) | ((later >> hl.u64(1)) >> (hl.u64(63) - shift)) for word, later in itertools.pairwise(window)
    ]
    w = [half for word in aligned for half in (word >> hl.u64(32), word & low32)]
    low = [v * m_low for v in w]  # of word i, i = 0 the top one
    high = [v * m_high for v in w]
    words: list[hl.Expr] = []
    carry = hl.u64(0)
    for i in (3, 2, 1, 0):
        total = carry + (low[i] & low32) + (low[i + 1] >> hl.u64(32))
        total = total + (high[i + 1] & low32) + (high[i + 2] >> hl.u64(32))
        words.insert(0, total & low32)
        carry = total >> hl.u64(32)
    upper = (words[0] << hl.u64(32)) | words[1]
    lower = (words[2] << hl.u64(32)) | words[3]
    fraction = (upper << hl.u64(2)) | (lower >> hl.u64(62))
    sign = fraction & hl.u64(1 << 63)
    quadrant = (upper >> hl.u64(62)) + (sign >> hl.u64(63))
    flip = hl.select(sign != hl.u64(0), hl.u64(0xFFFFFFFFFFFFFFFF), hl.u64(0))
    fraction = fraction ^ flip
    lower = (lower << hl.u64(2)) ^ flip
    a, b = _scaled_word(fraction >> hl.u64(32), 32), _scaled_word(fraction & low32, 64)
    c, d = _scaled_word(lower >> hl.u64(32), 96), _scaled_word(lower & low32, 128)
    s = a + b
    tail = (b - (s - a)) + (c + d)
    turns = s + tail
    turns_low = tail - (turns - s)
    t = head(turns)
    p, q = (hl.f64(v) for v in HALF_PI)
    exact = t * p
    rest = ((turns - t) + turns_low) * (p + q) + t * q
    r = exact + rest
    r_low = rest - (r - exact)
    near = hl.abs(x) < hl.f64(math.pi / 4)
    zero = hl.u64(0)
    return (
        hl.select(near, zero, quadrant),
        hl.select(near, hl.abs(x), from_bits(hl.reinterpret(hl.UInt(64), r) ^ sign)),
        hl.select(near, hl.f64(0), from_bits(hl.reinterpret(hl.UInt(64), r_low) ^ sign)),
    )


def _window(index: hl.Expr) -> list[hl.Expr]:
    """Four 64-bit words of 2/pi (a zero word before it) from word `index`, 0 <= index <= 16."""
    words = [hl.u64(0)] + [hl.u64(_bits_of_two_over_pi(64 * i, 64)) for i in range(19)]
    last = index == hl.u64(16)  # 15 + 1
    for step in (8, 4, 2, 1):
        ahead = last | ((index & hl.u64(step)) != hl.u64(0))
        words = [hl.select(ahead, later, word) for word, later in zip(words, words[step:], strict=False)]
    return [hl.select(last, later, word) for word, later in itertools.pairwise(words)]


def _scaled_word(word: hl.Expr, places: int) -> hl.Expr:
    """word * 2**-places, word < 2**32."""
    offset = float(2**52)
    bits = word | hl.u64((BINARY64.bias + 52) << 52)
    return (from_bits(bits) - hl.f64(offset)) * hl.f64(2.0**-places)
