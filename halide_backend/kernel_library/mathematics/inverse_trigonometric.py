"""asin, acos, atan, atan2. Binary32 ones are rounded from binary64, which needs fewer terms for them.

Interval reductions of fdlibm's e_asin.c and s_atan.c, rational minimax approximations by
tests/kernel_library/mathematics/fits.py.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY64,
    float_format,
    head,
    is_infinite,
    negate,
    rough_reciprocal,
    sign_bits,
    sum_in_two_parts,
    with_sign_of,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# (asin(x) - x) / x**3 in z = x**2 <= 0.2505, error of asin 2**-62.6 (P/Q).
ASIN_P = (
    3.6349457044110586e-05,
    0.0008149453036652936,
    -0.04068963990676406,
    0.20299861799488042,
    -0.3268224522115106,
    0.1666666666666666,
)
ASIN_Q = (0.07843417431555033, -0.6964182560790002, 2.0350551860881216, -2.4109347132691448, 1.0)
# (atan(t) - t) / t**3 in z = t**2, |t| <= 7/16, error of atan 2**-63 (P/Q).
ATAN_P = (
    -0.0001721552021962814,
    -0.03732189032256159,
    -0.2721048136409475,
    -0.5544485804271734,
    -0.33333333333333326,
)
ATAN_Q = (0.04770538563721782, 0.5227439607367851, 1.7457504571241127, 2.263345741281471, 1.0)
# For binary32: the same of asin, error 2**-35.8, and of atan in z = t**2, |t| <= 1, error 2**-33.9.
ASIN_32 = (
    0.034662034096046214,
    0.00749672469451833,
    0.024608733695137816,
    0.030111906593555192,
    0.04466001970300225,
    0.07499948732604433,
    0.16666667182148828,
)
ATAN_32 = (
    -0.0006980290978192408,
    0.004926742998790452,
    -0.016300333185331337,
    0.03447698811502757,
    -0.05451680550688131,
    0.07259476168753921,
    -0.0898544877241804,
    0.11094504673577527,
    -0.14284167152865854,
    0.19999927217683242,
    -0.33333332132306887,
)
# pi and pi/2 beyond binary64.
PI_REST = 1.2246467991473532e-16
HALF_PI_REST = 6.123233995736766e-17
# c, atan(c) and what atan(c) is beyond binary64, for the intervals from 0, 7/16, 11/16, 19/16 and 39/16.
ATAN_INTERVALS = (
    (7 / 16, 0.5, 0.4636476090008061, 2.2698777452961687e-17),
    (11 / 16, 1.0, 0.7853981633974483, 3.061616997868383e-17),
    (19 / 16, 1.5, 0.982793723247329, 1.3903311031230998e-17),
)
ATAN_LAST = 39 / 16


def asin(x: hl.Expr) -> hl.Expr:
    """x + x**3 R(x**2), or pi/2 - 2 asin(sqrt((1 - |x|)/2)) for |x| > 0.5."""
    if float_format(x) is BINARY64:
        return _asin_64(x)
    _, outer, arc = _arc_32(x)
    return with_sign_of(hl.cast(float_format(x).float_type, hl.select(outer, hl.f64(math.pi / 2) - arc * 2, arc)), x)


def acos(x: hl.Expr) -> hl.Expr:
    """pi/2 - asin(x), or 2 asin(sqrt((1 - |x|)/2)) for x > 0.5 and pi minus that for x < -0.5."""
    if float_format(x) is BINARY64:
        return _acos_64(x)
    wide, outer, arc = _arc_32(x)
    left = wide < hl.f64(0)
    signed = hl.select(left, negate(arc), arc)
    far = hl.select(left, hl.f64(math.pi) - arc * 2, arc * 2)
    return hl.cast(float_format(x).float_type, hl.select(outer, far, hl.f64(math.pi / 2) - signed))


def _arc_32(x: hl.Expr) -> tuple[hl.Expr, hl.Expr, hl.Expr]:
    """x in binary64, whether |x| > 0.5, and asin(|x|), or asin(sqrt((1 - |x|)/2)) then, for binary32."""
    wide = hl.cast(hl.Float(64), x)
    a = hl.abs(wide)
    outer = a > hl.f64(0.5)
    z = hl.select(outer, (hl.f64(1) - a) * hl.f64(0.5), a * a)
    s = hl.select(outer, hl.sqrt(z), a)
    return wide, outer, s * z * polynomial(z, ASIN_32) + s


def _asin_64(x: hl.Expr) -> hl.Expr:
    a = hl.abs(x)
    outer = a > hl.f64(0.5)
    z, s, r = _half_angle(a, outer)
    f, c = _root_in_two_parts(z, s)
    total, missing = sum_in_two_parts(hl.f64(math.pi / 2), f * hl.f64(-2))
    large = total + (missing + (hl.f64(HALF_PI_REST) - (s * r + c) * 2))
    return with_sign_of(hl.select(outer, large, a * r + a), x)


def _acos_64(x: hl.Expr) -> hl.Expr:
    a = hl.abs(x)
    outer = a > hl.f64(0.5)
    z, s, r = _half_angle(a, outer)
    f, c = _root_in_two_parts(z, s)
    bend = hl.select(outer, s * r + c, x * r * hl.f64(0.5))
    right = (f + bend) * 2
    # pi/2 - x, or pi - 2 f
    start, rest = _where(outer, math.pi, math.pi / 2), _where(outer, PI_REST, HALF_PI_REST)
    total, missing = sum_in_two_parts(start, hl.select(outer, f * hl.f64(-2), negate(x)))
    left = total + (missing + (rest - bend * 2))
    return hl.select(outer & (x > hl.f64(0)), right, left)


def _where(condition: hl.Expr, value: float, other: float) -> hl.Expr:
    return hl.select(condition, hl.f64(value), hl.f64(other))


def _half_angle(a: hl.Expr, outer: hl.Expr) -> tuple[hl.Expr, hl.Expr, hl.Expr]:
    """(z, s, r): asin(s) = s + s r, s = sqrt(z); z = a**2, or (1-a)/2 where outer. NaN for a > 1."""
    z = hl.select(outer, (hl.f64(1) - a) * hl.f64(0.5), a * a)
    s = hl.select(outer, hl.sqrt(z), a)
    return z, s, z * (polynomial(z, ASIN_P) / polynomial(z, ASIN_Q))


def _root_in_two_parts(z: hl.Expr, s: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(f, c): f + c = sqrt(z) beyond binary64, f a head of s = sqrt(z)."""
    f = head(s)
    return f, (z - f * f) / (s + f + hl.f64(1e-300))  # 1e-300: no 0/0


def atan(x: hl.Expr) -> hl.Expr:
    if float_format(x) is not BINARY64:
        return with_sign_of(_angle_32(hl.abs(x), float_format(x).value(1), hl.u64(0) != hl.u64(0)), x)
    return with_sign_of(_angle(hl.abs(x), hl.f64(1), hl.u64(0) != hl.u64(0), exactly=False), x)


def atan2(y: hl.Expr, x: hl.Expr) -> hl.Expr:
    """The angle of (x, y) in [-pi, pi], with C99's values for zeros and infinities of either sign."""
    f = float_format(x)
    left = sign_bits(x) != f.word(0)
    if f is BINARY64:
        return with_sign_of(_angle(hl.abs(y), hl.abs(x), left, exactly=True), y)
    return with_sign_of(_angle_32(hl.abs(y), hl.abs(x), left), y)


def _angle_32(a: hl.Expr, b: hl.Expr, left: hl.Expr) -> hl.Expr:
    """atan(a/b), or pi minus it where `left`; a, b >= 0 of binary32, whose quotients binary64 holds."""
    f = float_format(a)
    both_infinite, both_zero = is_infinite(a) & is_infinite(b), (a == f.value(0)) & (b == f.value(0))
    a, b = hl.select(both_infinite, f.value(1), a), hl.select(both_infinite | both_zero, f.value(1), b)
    steep = a > b
    over, under = (hl.cast(hl.Float(64), each) for each in (hl.select(steep, b, a), hl.select(steep, a, b)))
    t = over / under
    z = t * t
    angle = t * z * polynomial(z, ATAN_32) + t
    angle = hl.select(steep, hl.f64(math.pi / 2) - angle, angle)
    return hl.cast(f.float_type, hl.select(left, hl.f64(math.pi) - angle, angle))


def _angle(a: hl.Expr, b: hl.Expr, left: hl.Expr, *, exactly: bool) -> hl.Expr:
    """atan(a/b), or pi minus it where `left`; a, b >= 0. exactly: what the division rounds off is put back.

    atan(a/b) = atan(c) + atan((a - c b)/(b + c a)) with the c of a/b's interval.
    """
    both_infinite = is_infinite(a) & is_infinite(b)
    both_zero = (a == hl.f64(0)) & (b == hl.f64(0))
    huge = (a > hl.f64(2.0**1020)) | (b > hl.f64(2.0**1020))
    large = hl.f64(2.0**800)
    tiny = ((a < hl.f64(2.0**-800)) | (b < hl.f64(2.0**-800))) & (a < large) & (b < large)
    scale = hl.select(huge, hl.f64(2.0**-8), hl.select(tiny, hl.f64(2.0**200), hl.f64(1)))
    a = hl.select(both_infinite, hl.f64(1), a * scale)
    b = hl.select(both_infinite | both_zero, hl.f64(1), b * scale)
    c, high, low = hl.f64(0), hl.f64(0), hl.f64(0)
    for bound, center, angle, rest in ATAN_INTERVALS:
        above = a >= b * hl.f64(bound)
        c = hl.select(above, hl.f64(center), c)
        high = hl.select(above, hl.f64(angle), high)
        low = hl.select(above, hl.f64(rest), low)
    steep = a >= b * hl.f64(ATAN_LAST)
    high = hl.select(steep, hl.f64(math.pi / 2), high)
    low = hl.select(steep, hl.f64(HALF_PI_REST), low)
    over = hl.select(steep, negate(b), hl.select(c == hl.f64(0), a, a - b * c))
    under = hl.select(steep, a, hl.select(c == hl.f64(0), b, a * c + b))
    t = over / under
    z = t * t
    bend = t * z * (polynomial(z, ATAN_P) / polynomial(z, ATAN_Q))
    if exactly:
        bend = bend + hl.select(under < hl.f64(math.inf), _quotient_rest(over, under, t), hl.f64(0))
    pi, rest = hl.f64(math.pi), hl.f64(PI_REST)
    other = pi - high
    other_low = ((pi - other) - high) + (rest - low)
    return hl.select(left, other - (t + (bend - other_low)), high + (t + (bend + low)))


def _quotient_rest(a: hl.Expr, b: hl.Expr, t: hl.Expr) -> hl.Expr:
    """a/b - t, t = a/b rounded."""
    t_head, b_head = head(t), head(b)
    residual = ((a - t_head * b_head) - t_head * (b - b_head)) - (t - t_head) * b
    return residual * rough_reciprocal(b)
