"""pow, sqrt, rsqrt.

pow is exp2(y log2|x|) with the logarithm carried further than the format: binary32 in binary64; binary64 as an
unevaluated sum of two, after fdlibm's e_pow.c, products made exact by `head`, so that contraction changes nothing.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.exponential import EXP_64
from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    at_least,
    at_most,
    float_format,
    from_bits,
    head,
    is_infinite,
    is_nan,
    power_of_two,
    quotient,
    round_to_integer,
    sign_bits,
    split_exponent,
    split_positive,
    sum_in_two_parts,
    times_power_of_two,
    to_bits,
)
from halide_backend.kernel_library.mathematics.logarithm import LN2, log2_in_two_parts
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# 2 atanh(s) / (s ln2) in z = s**2 <= 0.02946, relative error 2**-45.1.
LOG2_SERIES = (
    0.2829208898267423,
    0.31990432060639457,
    0.4122092840058531,
    0.5770779420720953,
    0.9617966941142767,
    2.8853900817778495,
)
# (2**r - 1) / r on |r| <= 0.501, error relative to 2**r: 2**-34.3.
EXP2_SERIES = (
    1.5310509500418175e-05,
    0.0001546722213354001,
    0.0013333445878659042,
    0.00961803660110179,
    0.055504109495162504,
    0.24022651077650148,
    0.6931471805436052,
)


def sqrt(x: hl.Expr) -> hl.Expr:
    return hl.sqrt(x)


def rsqrt(x: hl.Expr) -> hl.Expr:
    return quotient(float_format(x).value(1), hl.sqrt(x))


def pow(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """x**y with every special case of C99: 1**NaN = NaN**0 = 1, (-1)**inf = 1, negative x with integer y."""
    f = float_format(x)
    a = hl.abs(x)
    size = _binary32_power(a, y) if f is BINARY32 else _binary64_power(a, y)
    half = y * f.value(0.5)
    whole = hl.floor(y) == y
    odd = whole & (hl.floor(half) != half)
    signed = from_bits(to_bits(size) | hl.select(odd, sign_bits(x), f.word(0)))
    domain_error = (x < f.value(0)) & hl.logical_not(whole | is_infinite(x) | is_nan(y))
    result = hl.select(domain_error, f.value(math.nan), signed)
    return hl.select((y == f.value(0)) | (x == f.value(1)), f.value(1), result)


def _logarithm_at_edges(a: hl.Expr, log2: hl.Expr) -> hl.Expr:
    """log2 for 0 < a < inf, -inf for 0, a itself (inf, NaN) otherwise."""
    f = float_format(a)
    finite = hl.select(a < f.value(math.inf), log2, a)
    return hl.select(a == f.value(0), f.value(-math.inf), finite)


def _product(a: hl.Expr, y: hl.Expr, log2: hl.Expr) -> hl.Expr:
    """y log2, but 0 for 1**inf, the one product 0 * inf that is no NaN."""
    f = float_format(y)
    return hl.select((a == f.value(1)) & is_infinite(y), f.value(0), y * log2)


def power_of_number(x: float, y: hl.Expr) -> hl.Expr:
    """x**y in binary32 of a finite x above 0 that is not 1: there are no special cases, and its logarithm is known."""
    return _power_of_two(hl.cast(hl.Float(64), y) * hl.f64(math.log2(x)))


def _binary32_power(a: hl.Expr, y: hl.Expr) -> hl.Expr:
    double = hl.Float(64)
    wide, exponent = hl.cast(double, a), hl.cast(double, y)
    m, e = split_exponent(wide)
    s = (m - 1) / (m + 1)
    log2 = _logarithm_at_edges(wide, s * polynomial(s * s, LOG2_SERIES) + e)
    return _power_of_two(_product(wide, exponent, log2))


def _power_of_two(x: hl.Expr) -> hl.Expr:
    """2**x, x in binary64, as binary32."""
    bounded = at_most(at_least(x, -160.0), 140.0)
    whole, k = round_to_integer(bounded)
    r = bounded - whole
    return hl.cast(hl.Float(32), (r * polynomial(r, EXP2_SERIES) + 1) * power_of_two(k))


def _binary64_power(a: hl.Expr, y: hl.Expr) -> hl.Expr:
    log_high, log_low = log2_in_two_parts(*split_positive(a))
    y_high = head(y)
    exact, rest = y_high * log_high, (y - y_high) * log_high + y * log_low
    regular = (a > 0) & (a < hl.f64(math.inf)) & (hl.abs(exact) < hl.f64(1100))
    edge = at_most(at_least(_product(a, y, _logarithm_at_edges(a, log_high)), -1100.0), 1100.0)
    high = hl.select(regular, exact, edge)
    low = hl.select(regular, rest, hl.f64(0))
    whole, k = round_to_integer(high)
    fraction = high - whole
    t = head(fraction + low)
    ln2_high, ln2_low = (hl.f64(c) for c in LN2)
    u, v = t * ln2_high, (low - (t - fraction)) * hl.f64(math.log(2)) + t * ln2_low
    z = u + v
    w = v - (z - u)
    total, missing = sum_in_two_parts(hl.f64(1), z)
    bend = z * z * polynomial(z, EXP_64) + (w + z * w)
    return times_power_of_two(total + (missing + bend), k)
