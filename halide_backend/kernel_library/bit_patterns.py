"""Operations on the bits of integers and floats."""

from __future__ import annotations

import halide as hl

from halide_backend.kernel_library.arithmetic import one, zero
from halide_backend.kernel_library.conversions import load, stored
from halide_backend.kernel_library.element_types import STORAGE, is_signed, logical_bits
from halide_backend.kernel_library.mathematics.floating_point import (
    is_infinite,
    is_nan,
    times_power_of_two,
    without_bounds,
)

_1 = hl.UInt(1)


def signbit(x: hl.Expr) -> hl.Expr:
    if not is_signed(x):
        return hl.cast(_1, hl.u8(0))
    if x.type().is_float():
        x = hl.reinterpret(hl.Int(x.type().bits()), without_bounds(x))
    return x < zero(x)


def copysign(magnitude: hl.Expr, sign: hl.Expr) -> hl.Expr:
    bits = magnitude.type().bits()
    word = hl.UInt(bits)
    top = hl.cast(word, hl.u32(1)) << (bits - 1)
    joined = (hl.reinterpret(word, magnitude) & (top - one(top))) | (hl.reinterpret(word, sign) & top)
    return hl.reinterpret(magnitude.type(), joined)


def nextafter(dtype: str, x: hl.Expr, towards: hl.Expr) -> hl.Expr:
    """The next number of torch dtype `dtype` after `x` in the direction of `towards`."""
    word = hl.Int(logical_bits(dtype))
    pattern = hl.reinterpret(word, stored(dtype, x))
    step = hl.cast(word, hl.i32(1))
    # Magnitudes order like their patterns: away from zero is one up.
    away = (towards > x) == (x > zero(x))
    one_further = _number(dtype, hl.select(away, pattern + step, pattern - step))
    smallest = copysign(_number(dtype, step), towards)
    moved = hl.select(x == zero(x), smallest, one_further)
    same = hl.select(x == towards, towards, moved)
    return hl.select(is_nan(x) | is_nan(towards), x + towards, same)


def _number(dtype: str, pattern: hl.Expr) -> hl.Expr:
    """The value of the bits `pattern` of a memory element of dtype `dtype`."""
    return load(dtype, hl.reinterpret(STORAGE[dtype], pattern))


def ldexp(x: hl.Expr, exponent: hl.Expr) -> hl.Expr:
    """x * 2**exponent, rounded once."""
    mantissa, own = _frexp(x)
    # Beyond these every x becomes 0 or infinity, and the sum of exponents stays far from int32's end.
    distance = hl.cast(hl.Int(32), hl.clamp(exponent, hl.cast(exponent.type(), hl.i32(-5000)), hl.i32(5000)))
    limit = 200 if x.type().bits() == 32 else 1500
    bits = hl.cast(hl.UInt(x.type().bits()), hl.clamp(own + distance, -limit, limit))
    finite = (x != zero(x)) & hl.logical_not(is_infinite(x) | is_nan(x))
    return hl.select(finite, times_power_of_two(mantissa, bits), x)


def frexp_mantissa(x: hl.Expr) -> hl.Expr:
    """The mantissa in [0.5, 1) of `x = mantissa * 2**exponent`; zero, infinity and NaN are their own."""
    return _frexp(x)[0]


def frexp_exponent(x: hl.Expr) -> hl.Expr:
    """The int32 exponent of `x = mantissa * 2**exponent`; 0 for zero, infinity and NaN."""
    return _frexp(x)[1]


def _frexp(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    bits = x.type().bits()
    fraction, bias = (23, 127) if bits == 32 else (52, 1023)
    word = hl.Int(bits)
    top = 2 * bias + 1
    # A denormal is scaled into the normal range first, exactly.
    scale = hl.cast(x.type(), hl.f64(2.0 ** (fraction + 1)))
    tiny = ((hl.reinterpret(word, x) >> fraction) & hl.cast(word, hl.i32(top))) == hl.cast(word, hl.i32(0))
    pattern = hl.reinterpret(word, hl.select(tiny, x * scale, x))
    exponent = hl.cast(hl.Int(32), (pattern >> fraction) & hl.cast(word, hl.i32(top)))
    keep = ~(hl.cast(word, hl.i32(top)) << fraction)
    half = hl.cast(word, hl.i32(bias - 1)) << fraction
    mantissa = hl.reinterpret(x.type(), (pattern & keep) | half)
    itself = (x == zero(x)) | (exponent == top)
    shift = hl.select(tiny, hl.i32(fraction + 1), hl.i32(0))
    return (
        hl.select(itself, x, mantissa),
        hl.select(itself, hl.i32(0), exponent - (bias - 1) - shift),
    )


def isnan(x: hl.Expr) -> hl.Expr:
    return is_nan(x) if x.type().is_float() else hl.cast(_1, hl.u8(0))


def isinf(x: hl.Expr) -> hl.Expr:
    return is_infinite(x) if x.type().is_float() else hl.cast(_1, hl.u8(0))


def bitwise_and(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a & b


def bitwise_or(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a | b


def bitwise_xor(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a != b if a.type() == _1 else a ^ b


def bitwise_not(x: hl.Expr) -> hl.Expr:
    return ~x


def bitwise_left_shift(x: hl.Expr, distance: hl.Expr) -> hl.Expr:
    """Shift left; 0 for a distance that is negative or not below the width, as in torch."""
    bits = x.type().bits()
    distance = hl.cast(hl.Int(64), distance)
    inside = (distance >= 0) & (distance < bits)
    word = hl.UInt(bits)
    # Of a distance that it knows bounds of, a loop's coordinate say, Halide asks for them without end.
    unknown = hl.cast(word, hl.clamp(distance, 0, bits - 1)) ^ hl.cast(word, 0)
    shifted = hl.reinterpret(word, x) << unknown
    return hl.select(inside, hl.reinterpret(x.type(), shifted), zero(x))


def bitwise_right_shift(x: hl.Expr, distance: hl.Expr) -> hl.Expr:
    """Arithmetic shift right; a distance that is negative or not below the width shifts everything out."""
    bits = x.type().bits()
    distance = hl.cast(hl.Int(64), distance)
    inside = (distance >= 0) & (distance < bits)
    full = bits - 1 if is_signed(x) else bits
    capped = hl.select(inside, distance, hl.i64(min(full, bits - 1)))
    shifted = x >> hl.cast(hl.UInt(bits), capped)
    return shifted if is_signed(x) else hl.select(inside, shifted, zero(x))
