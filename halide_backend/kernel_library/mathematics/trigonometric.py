"""sin, cos, tan.

Minimax polynomials on |r| <= pi/4 by tests/kernel_library/mathematics/fits.py, after the reduction of angle.py.
"""

from __future__ import annotations

import math
from operator import add

import halide as hl

from halide_backend.kernel_library.mathematics.angle import (
    reduce_angle_32,
    reduce_angle_64,
    reduce_angle_single,
)
from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    float_format,
    from_bits,
    head,
    negate,
    odd_series,
    quotient_of_sums,
    sign_bits,
    sum_in_two_parts,
    to_bits,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# (sin(r) - r) / r**3 (binary64: less SIN_CUBIC) in z = r**2 <= 0.63, relative error 2**-27.9 and 2**-57.8.
SIN_32 = (-0.0001951080809774966, 0.008332131168672253, -0.16666654217720483)
SIN_64 = (
    1.5893595102991658e-10,
    -2.5050704231405284e-08,
    2.7557313357219948e-06,
    -0.00019841269828873507,
    0.008333333333321289,
    -1.017252604127701e-05,
)
SIN_CUBIC = -0.166656494140625
# (cos(r) - 1 + r**2/2) / r**4 in z, error of cos 2**-33 and 2**-64.
COS_32 = (2.443135778753422e-05, -0.0013887307960469115, 0.04166664571074384)
COS_64 = (
    -1.1357446047794387e-11,
    2.0875681835122294e-09,
    -2.7557314056313337e-07,
    2.480158728849153e-05,
    -0.0013888888888872598,
    0.04166666666666659,
)
# tan(r) / r in z, relative error 2**-35 (P/Q).
TAN_32_P = (0.0010751896194867308, -0.1113619472722574, 1.0000000000223344)
TAN_32_Q = (0.01597359585767495, -0.44469527892960065, 1.0)


def sin(x: hl.Expr) -> hl.Expr:
    return _sine_of_quadrants(x, 0)


def cos(x: hl.Expr) -> hl.Expr:
    return _sine_of_quadrants(x, 1)


def _sine_of_quadrants(x: hl.Expr, turn: int) -> hl.Expr:
    """sin(x + turn pi/2)."""
    if float_format(x) is BINARY32:
        quadrant, r = reduce_angle_single(hl.abs(x))
        return _turned(x, quadrant, _sine_32(r), _cosine_32(r), turn)  # of an infinite x, r is NaN
    return sine_of_parts(x, reduce_angle_64(x), turn)


def sine_of(x: hl.Expr, quadrant: hl.Expr, r: hl.Expr, turn: int) -> hl.Expr:
    """sin(x + turn pi/2) of a binary32 x whose absolute value is r beyond a quadrant."""
    return _if_finite(x, _turned(x, quadrant, _sine_32(r), _cosine_32(r), turn))


def sine_of_parts(x: hl.Expr, parts: tuple[hl.Expr, hl.Expr, hl.Expr], turn: int) -> hl.Expr:
    """sin(x + turn pi/2) of a binary64 x of which `parts` are as `reduce_angle_64` makes them."""
    quadrant, r, low = parts
    return _if_finite(x, _turned(x, quadrant, add(*_sine_64(r, low)), add(*_cosine_64(r, low)), turn))


def sine_and_cosine_of(r: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """Those of an angle of at most pi/4, as accurate as binary32 needs them, in its format."""
    return _sine_32(r), _cosine_32(r)


def _turned(x: hl.Expr, quadrant: hl.Expr, sine: hl.Expr, cosine: hl.Expr, turn: int) -> hl.Expr:
    """What sine and cosine of the rest make in a quadrant and `turn` more."""
    f = float_format(x)
    quadrant = quadrant + turn
    y = hl.select((quadrant & f.word(1)) == f.word(0), sine, cosine)
    flip = (quadrant & f.word(2)) << f.word(f.width - 2)
    if turn == 0:
        flip = flip ^ sign_bits(x)  # the reduction is of |x|
    return from_bits(to_bits(y) ^ flip)


def _if_finite(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    f = float_format(x)
    return hl.select(hl.abs(x) < f.value(math.inf), y, f.value(math.nan))


def sine_and_cosine(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """sin |x| and cos |x| in binary64, x finite and of either format."""
    if float_format(x) is BINARY32:
        quadrant, r = reduce_angle_32(hl.abs(x))
        low = hl.f64(0)
    else:
        quadrant, r, low = reduce_angle_64(x)
    sine, cosine = add(*_sine_64(r, low)), add(*_cosine_64(r, low))
    odd = (quadrant & hl.u64(1)) != hl.u64(0)
    flip_sine = (quadrant & hl.u64(2)) << hl.u64(62)
    flip_cosine = ((quadrant + 1) & hl.u64(2)) << hl.u64(62)
    return (
        from_bits(to_bits(hl.select(odd, cosine, sine)) ^ flip_sine),
        from_bits(to_bits(hl.select(odd, sine, cosine)) ^ flip_cosine),
    )


def sine_in_two_parts(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """sin |x| in binary64, x finite; of a binary32 x to 2**-27 of it, and in one part."""
    zero = hl.f64(0)
    if float_format(x) is BINARY32:
        quadrant, r = reduce_angle_32(hl.abs(x))
        sine, cosine = (_sine_32(r), zero), (_cosine_32(r), zero)
    else:
        quadrant, r, low = reduce_angle_64(x)
        sine, cosine = _sine_64(r, low), _cosine_64(r, low)
    odd, flip = (quadrant & hl.u64(1)) != hl.u64(0), (quadrant & hl.u64(2)) << hl.u64(62)
    high, rest = (from_bits(to_bits(hl.select(odd, c, s)) ^ flip) for s, c in zip(sine, cosine, strict=True))
    return high, rest


def _sine_32(r: hl.Expr) -> hl.Expr:
    """sin(r) as accurate as binary32 needs it, in the format of r."""
    z = r * r
    return r * z * polynomial(z, SIN_32) + r


def _cosine_32(r: hl.Expr) -> hl.Expr:
    z = r * r
    return (z * z * polynomial(z, COS_32) - z * float_format(r).value(0.5)) + 1


def _sine_64(r: hl.Expr, low: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """sin(r + low) in two parts."""
    z = r * r
    return odd_series(r, SIN_CUBIC, r * z * polynomial(z, SIN_64) + (low - z * hl.f64(0.5) * low))


def _cosine_64(r: hl.Expr, low: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """cos(r + low) in two parts; the head of r has an exact square."""
    z, h = r * r, head(r, 4)
    total, missing = sum_in_two_parts(hl.f64(1), h * h * hl.f64(-0.5))
    return total, missing + (z * z * polynomial(z, COS_64) - ((r - h) * (r + h) * hl.f64(0.5) + r * low))


def tan(x: hl.Expr) -> hl.Expr:
    """sine / cosine, or -cosine / sine in the odd quadrants."""
    f = float_format(x)
    if f is BINARY32:
        quadrant, r = reduce_angle_32(x)
        z = r * r
        over, under = r * polynomial(z, TAN_32_P), polynomial(z, TAN_32_Q)
        odd = (quadrant & hl.u64(1)) != hl.u64(0)
        y = hl.cast(hl.Float(32), hl.select(odd, negate(under), over) / hl.select(odd, over, under))
    else:
        return tangent_of_parts(x, reduce_angle_64(x))
    return _if_finite(x, y)


def tangent_of_parts(x: hl.Expr, parts: tuple[hl.Expr, hl.Expr, hl.Expr]) -> hl.Expr:
    """tan(x) of a binary64 x of which `parts` are as `reduce_angle_64` makes them."""
    quadrant, r, low = parts
    (sine, sine_rest), (cosine, cosine_rest) = _sine_64(r, low), _cosine_64(r, low)
    odd = (quadrant & hl.u64(1)) != hl.u64(0)
    under = sum_in_two_parts(hl.select(odd, sine, cosine), hl.select(odd, sine_rest, cosine_rest))
    y = quotient_of_sums(hl.select(odd, cosine, sine), hl.select(odd, cosine_rest, sine_rest), *under)
    return _if_finite(x, from_bits(to_bits(y) ^ sign_bits(x) ^ (quadrant << hl.u64(63))))
