"""lgamma and digamma of binary64, to 0.53 and 1.5 ulps, of 1 where the result is less.

Large terms that may cancel are sums in two parts: logarithms, the sine's or cotangent's part of a reflection, the first
products of a series, the parabola between the zeros of lgamma.
Rational minimax approximations for |x| < 2.5, Stirling's series (DLMF 5.11.1, 5.11.2) with minimax coefficients beyond,
reflection (5.5.3, 5.5.4) for negative arguments. Coefficients by tests/kernel_library/mathematics/fits.py.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    head,
    negate,
    odd_series,
    quotient,
    remainder,
    sum_in_two_parts,
    two_sum,
)
from halide_backend.kernel_library.mathematics.logarithm import log_in_two_parts
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# lgamma(1 + y) / (y (y - 1)) - 1/2 on [0, 1.5], error 2**-56.9 (P/Q).
NEAR_P = (
    -5.388676286003999e-07,
    -0.001132296434608398,
    -0.023290516032068134,
    -0.1434852949731563,
    -0.3479051396897159,
    -0.31459892501556536,
    -0.01339039410733608,
    0.07721566490153285,
)
NEAR_Q = (
    0.0023702875047266103,
    0.06130918866303227,
    0.5121684548443917,
    1.899171185177185,
    3.4500843130850227,
    3.002771195597621,
    1.0,
)
# x (lgamma(x) - (x - 1/2) log(x) + x - log(2 pi)/2) in 1/x**2, x >= 2.5; error of lgamma 2**-58.9.
STIRLING_FROM_TWO_AND_A_HALF = (
    1.4444218964472724,
    -1.768768687964812,
    1.0157931682373678,
    -0.37274140095106834,
    0.10284927215312258,
    -0.024766088479023656,
    0.006180827782188251,
    -0.0019095266603489428,
    0.0008415592288350622,
    -0.0005952351644628318,
    0.0007936507680166798,
    -0.0027777777776724624,
    0.0833333333333332,
)
# (sin(pi f) / (pi f) - 1) / f**2 - SIN_PI_CUBIC in f**2 - SIN_PI_MIDDLE, f <= 1/2, error relative to the sine 2**-61.6.
# From there on, so that it is small where the sine bends most.
SIN_PI_REST = (
    2.4499360602337353e-07,
    -6.596921400059314e-06,
    0.00013952318145972256,
    -0.002188652562424793,
    0.02416461208732237,
    -0.17425058098131951,
    0.731945596232788,
    9.358018371283995e-05,
)
SIN_PI_CUBIC = -1.476318359375
SIN_PI_MIDDLE = 0.21875
# The positive zero of digamma, and digamma(1 + y) / (1 + y - zero) - 1 on [0, 2], error 2**-55.7 (P/Q).
DIGAMMA_ZERO = (1.4616321449683622, 9.549995429965697e-17)
DIGAMMA_P = (
    -9.566470900077458e-05,
    -0.0048045711922463895,
    -0.06564399209567988,
    -0.34077650340770693,
    -0.6840798076043269,
    -0.31514079982116333,
    0.2503801375034053,
)
DIGAMMA_Q = (
    9.644777506768619e-05,
    0.005278722763890086,
    0.08324154284859793,
    0.5417018644183991,
    1.6185761756155157,
    2.1549335588701832,
    1.0,
)
# x**2 (log(x) - 1/(2 x) - digamma(x)) in 1/x**2, x >= 2.5; error of digamma 2**-59.6.
DIGAMMA_FROM_TWO_AND_A_HALF = (
    -96.13814130615464,
    126.54593753196727,
    -77.65030322411994,
    29.908728516688335,
    -8.315522119411792,
    1.8601811022310195,
    -0.37750767146320846,
    0.08049025081637405,
    -0.021001183479710434,
    0.007573669907010555,
    -0.004166635146664021,
    0.003968253681757843,
    -0.008333333332004355,
    0.08333333333333116,
)
# 4 + (pi cot(pi f) - 1/f) / f in f**2 <= 1/4, error of the cotangent 2**-54 as rounded (P/Q).
COTANGENT_P = (
    7.943575526908867e-05,
    -0.08232527778302134,
    1.122391923103097,
    -3.1159813573122013,
    0.7101318663035475,
)
COTANGENT_Q = (
    -0.02251108985005097,
    0.3621705893671678,
    -1.3396594844304768,
    1.0,
)
#: Where the series begin.
FAR = 2.5
# log(2 pi)/2 - 1/2 and 1 more, each with its rest.
CONSTANT = (0.4189385332046727, 1.6728209650585413e-17)
CONSTANT_AND_ONE = (1.4189385332046727, 7.223936088184323e-17)
#: Beyond it the result is infinite.
LARGEST = 2.5599833278516383e305


def lgamma_64(x: hl.Expr) -> hl.Expr:
    """log |gamma(x)|, x in binary64: inf at 0, the negative integers and both infinities.

    For negative x, -log |gamma(x)| is log(gamma(a)) + log(a) + log(|sin(pi a)| / pi), a = -x.
    """
    a = hl.abs(x)
    negative, near = x < hl.f64(0), a < hl.f64(FAR)
    log_high, log_low = log_in_two_parts(a)
    turn = hl.select(negative, hl.f64(1), hl.f64(0))
    # The factor of the logarithm, a - 1/2 + turn or of 1, 0 and -1 the one that is right.
    less = hl.select(near, hl.select(a < hl.f64(1), hl.f64(1), hl.f64(0)), hl.f64(0.5))
    factor, lost = sum_in_two_parts(hl.select(near, hl.f64(0), a), turn - less)
    logarithm = log_high - hl.select(near, hl.f64(0), hl.f64(1))
    high, missing = _product(factor, logarithm, log_low)
    missing = missing + lost * logarithm
    start = hl.select(negative, hl.f64(CONSTANT_AND_ONE[0]), hl.f64(CONSTANT[0]))
    start_rest = hl.select(negative, hl.f64(CONSTANT_AND_ONE[1]), hl.f64(CONSTANT[1]))
    u = quotient(hl.f64(1), a)
    series = u * polynomial(u * u, STIRLING_FROM_TWO_AND_A_HALF) + start_rest
    near_high, near_low = _near(a)
    total, rest = two_sum(high, hl.select(near, near_high, start))
    rest = rest + (missing + hl.select(near, near_low, series))
    distance = hl.abs(a - hl.round(a))
    sine_high, sine_low = _log_of_sine(distance)
    both, last = two_sum(total, sine_high)
    reflected = both + (last + (rest + sine_low))
    reflected = hl.select(distance == hl.f64(0), hl.f64(math.inf), negate(reflected))
    result = hl.select(negative, reflected, total + rest)
    return hl.select((a > hl.f64(LARGEST)) | (a == hl.f64(0)), hl.f64(math.inf), result)


def _near(a: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """lgamma(a), or lgamma(1 + a) for a < 1, in two parts; a < 2.5.

    y (y - 1)/2 is exact but for what the head of y lacks, and the quotient beside the half is small.
    """
    y = hl.select(a < hl.f64(1), a, a - 1)
    h, t, half = head(y, 4), y * (y - 1), hl.f64(0.5)
    bend = t * (polynomial(y, NEAR_P) / polynomial(y, NEAR_Q))
    return (h * h - y) * half, (y - h) * (y + h) * half + bend


def _product(a: hl.Expr, high: hl.Expr, low: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """a (high + low) in two parts, the first exact."""
    a_head, high_head = head(a), head(high)
    return a_head * high_head, (a - a_head) * high_head + a * ((high - high_head) + low)


def _log_of_sine(f: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """log(sin(pi f) / pi) in two parts, 0 < f <= 1/2."""
    z = f * f
    bend = f * z * polynomial(z - hl.f64(SIN_PI_MIDDLE), SIN_PI_REST)
    sine, rest = sum_in_two_parts(*odd_series(f, SIN_PI_CUBIC, bend))
    high, low = log_in_two_parts(sine)
    return high, low + quotient(rest, sine)


def digamma_64(x: hl.Expr) -> hl.Expr:
    """The derivative of lgamma, x in binary64; -+inf at +-0, NaN at the negative integers.

    For negative x it is digamma(a) + 1/a + pi cot(pi a), a = -x; for 0 < x < 1, digamma(1 + x) - 1/x.
    """
    zero, one = hl.f64(0), hl.f64(1)
    a = hl.abs(x)
    negative, small, near = x < zero, a < one, a < hl.f64(FAR)
    f = a - hl.round(a)
    divisor = hl.select(negative, f, a)
    pole = quotient(one, divisor)
    pole_rest = pole * remainder(one, pole, divisor)
    used = negative | small
    sign = hl.select(negative, one, hl.f64(-1))
    pole, pole_rest = hl.select(used, pole * sign, zero), hl.select(used, pole_rest * sign, zero)
    start, start_rest = sum_in_two_parts(pole, hl.select(negative, f * hl.f64(-4), zero))
    z = f * f
    bend = f * (polynomial(z, COTANGENT_P) / polynomial(z, COTANGENT_Q))
    log_high, log_low = log_in_two_parts(a)
    u = quotient(one, a)
    v = u * u
    series = (log_low + u * hl.select(negative, hl.f64(0.5), hl.f64(-0.5))) - v * polynomial(
        v, DIGAMMA_FROM_TWO_AND_A_HALF
    )
    total, rest = two_sum(hl.select(near, digamma_near(a), log_high), start)
    rest = rest + (start_rest + (pole_rest + hl.select(negative, bend, zero)))
    result = total + (rest + hl.select(near, hl.select(negative & hl.logical_not(small), u, zero), series))
    result = hl.select(a < hl.f64(2.0**-60), quotient(hl.f64(-1), x), result)
    result = hl.select(negative & (f == zero), hl.f64(math.nan), result)
    return hl.select(x == hl.f64(math.inf), x, result)


def digamma_near(a: hl.Expr) -> hl.Expr:
    """digamma(a), or digamma(1 + a) for a < 1; a < 3, in binary64."""
    small = a < hl.f64(1)
    y = hl.select(small, a, a - 1)
    zero, rest = (hl.f64(v) for v in DIGAMMA_ZERO)
    distance = hl.select(small, (hl.f64(1) - zero) + a, a - zero) - rest
    return distance * (polynomial(y, DIGAMMA_P) / polynomial(y, DIGAMMA_Q)) + distance
