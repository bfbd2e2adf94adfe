"""fmod, exact for every pair of finite numbers."""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY64,
    float_format,
    from_bits,
    is_infinite,
    is_nan,
    magnitude_bits,
    quotient,
    sign_bits,
    times_power_of_two,
    to_bits,
)

_WORD = hl.UInt(64)

# Quotients of binary32 beyond this come by repeated squaring. `build/llvm/rare_ranges.py` knows the number.
LARGE_QUOTIENT_32 = 2.0**28


def fmod(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """x - y trunc(x/y), with the sign of x; NaN for infinite x or zero y."""
    f = float_format(x)
    if f is BINARY64:
        return _remainder(x, y, squares=6)
    wide = hl.Float(64)
    a, b = hl.abs(hl.cast(wide, x)), hl.abs(hl.cast(wide, y))
    count = quotient(a, b)
    # Of significands of 24 bits a quotient that is not whole is 2**-24 or more away from whole numbers, and this one
    # off by 2**-25 at most; what is taken away has 52 bits, and the rest those of y.
    rest = hl.cast(f.float_type, a - hl.trunc(count) * b)
    near = hl.select(a < b, x, from_bits(to_bits(rest) | sign_bits(x)))
    far = hl.cast(f.float_type, _remainder(hl.cast(wide, x), hl.cast(wide, y), squares=3))
    return hl.select(count > hl.f64(LARGE_QUOTIENT_32), far, near)


def _remainder(x: hl.Expr, y: hl.Expr, squares: int) -> hl.Expr:
    """With integers m, n < 2**53, |x| = m 2**e and |y| = n 2**g, it is (m 2**(e-g) mod n) 2**g.

    2**(e-g) mod n comes by repeated squaring; e - g < 52 * 2**squares.
    """
    m, e = _integer_and_exponent(x)
    n, g = _integer_and_exponent(y)
    distance = hl.select(e < g, hl.u64(0), e - g)
    wide = hl.cast(hl.Float(64), n)
    power = hl.u64(1) << (distance >> hl.u64(squares))
    for bit in reversed(range(squares)):
        power = _product_modulo(power, power, n, wide)
        doubled = power + power
        reduced = hl.min(doubled, doubled - n)
        odd = ((distance >> hl.u64(bit)) & hl.u64(1)) != hl.u64(0)
        power = hl.select(odd, reduced, power)
    rest = _product_modulo(power, hl.min(m, m - n), n, wide)
    exact = times_power_of_two(hl.cast(hl.Float(64), rest), g - hl.u64(_OFFSET))
    y_is_zero = y == hl.f64(0)
    invalid = is_infinite(x) | is_nan(x) | is_nan(y) | y_is_zero
    smaller = magnitude_bits(x) < magnitude_bits(y)
    signed = hl.select(smaller, x, from_bits(to_bits(exact) | sign_bits(x)))
    return hl.select(invalid, hl.f64(math.nan), signed)


# Exponents are kept positive by this much: -1074 - 54 is the least.
_OFFSET = 2048


def _integer_and_exponent(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(m, e): |x| = m 2**(e - 2048), 2**52 <= m < 2**53, for finite x != 0."""
    a = hl.abs(x)
    tiny = a < hl.f64(2.0**-1022)
    bits = to_bits(hl.select(tiny, a * hl.f64(2.0**54), a))
    m = (bits & hl.u64((1 << 52) - 1)) | hl.u64(1 << 52)
    shift = hl.select(tiny, hl.u64(_OFFSET - 1075 - 54), hl.u64(_OFFSET - 1075))
    return m, (bits >> hl.u64(52)) + shift


def _product_modulo(a: hl.Expr, b: hl.Expr, n: hl.Expr, wide: hl.Expr) -> hl.Expr:
    """a b mod n, all below 2**53; `wide` is n as a float.

    The quotient from floats is off by at most 2, so the remainder lies in (-3 n, 3 n) and is right modulo 2**64.
    """
    real = hl.Float(64)
    quotient = hl.cast(_WORD, hl.cast(real, a) * hl.cast(real, b) / wide)
    rest = a * b - quotient * n
    negative = (rest >> hl.u64(63)) != hl.u64(0)
    rest = hl.select(negative, rest + n * hl.u64(3), rest)
    rest = hl.min(rest, rest - n * hl.u64(2))
    return hl.min(rest, rest - n)
