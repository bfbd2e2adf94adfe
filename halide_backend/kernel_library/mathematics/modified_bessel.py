"""The modified Bessel functions I0, I1, K0, K1 and their exponentially scaled forms, in binary64.

I_n(x) / x**n is a polynomial in x**2 up to 8, sqrt(x) exp(-x) I_n(x) one in 1/x beyond. K_n has a logarithm times I_n
up to 1 (DLMF 10.31) and is exp(-x) / sqrt(x) times a rational function of 1/x beyond (DLMF 10.40).
Coefficients by tests/kernel_library/mathematics/special_fits.py. binary32 results are those of binary64, rounded.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import halide as hl

from halide_backend.kernel_library.mathematics.exponential import EXP_64, reduce_exponential
from halide_backend.kernel_library.mathematics.floating_point import (
    at_least,
    at_most,
    head,
    in_binary64,
    negate,
    quotient,
    times_power_of_two,
)
from halide_backend.kernel_library.mathematics.logarithm import log
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# I_n(x) / x**n in x**2 <= 64, relative errors 2**-59.9 and 2**-62.7.
I0 = (
    8.567143900468705e-34,
    4.199136935364969e-31,
    3.933565564737797e-28,
    2.590171162647217e-25,
    1.4967789809656514e-22,
    7.242073945795393e-20,
    2.896908914863798e-17,
    9.38596579894465e-15,
    2.4028075678463104e-12,
    4.709502795103502e-10,
    6.781684027919388e-08,
    6.781684027771288e-06,
    0.0004340277777777951,
    0.015624999999999977,
    0.25,
    1.0,
)
I1 = (
    2.6313014201202567e-35,
    1.4203299294650828e-32,
    1.4006996387791171e-29,
    9.967125510479537e-27,
    6.2361936024423345e-24,
    3.2918726641614476e-21,
    1.4484536557026447e-18,
    5.214425664237391e-16,
    1.5017547255856896e-13,
    3.363930568525079e-11,
    5.651403356543729e-09,
    6.781684027774701e-07,
    5.425347222222312e-05,
    0.0026041666666666652,
    0.0625,
    0.5,
)
# sqrt(x) exp(-x) I_n(x) in 1/x - 1/16 for x >= 8, relative error 2**-55.5 of both.
I0_FAR = (
    -8.425234495697309e16,
    2.9855545522597236e16,
    2596184242857892.5,
    -820643859765494.6,
    -39698696453703.0,
    10548220258528.072,
    429347248750.5667,
    -85314283028.26506,
    -3975113994.074293,
    475669393.9531382,
    33862384.949249834,
    -1424290.243112838,
    -235668.12078066834,
    -7522.621204795794,
    518.9419774432866,
    92.61939719755512,
    10.55657348546943,
    1.4884837617703546,
    0.3118043721024067,
    0.09724543973345613,
    0.04564186641340771,
    0.034871315043883785,
    0.05376883173868554,
    0.4021765094450081,
)
I1_FAR = (
    8.09805117280602e16,
    -3.1069831315670584e16,
    -2470418721870692.0,
    855295026158919.8,
    37676435071490.18,
    -11024214419851.414,
    -411667993771.60394,
    89667331725.41057,
    3904987534.5850854,
    -506257512.4777814,
    -34315643.30517847,
    1580705.0286875942,
    246740.1866820036,
    7512.340029915988,
    -579.005740773935,
    -100.46294994652172,
    -11.577485511526437,
    -1.6779088798427086,
    -0.3653087262713949,
    -0.12025267635475032,
    -0.06159788933764138,
    -0.05612435554100565,
    -0.1559932350917716,
    0.38939845902587233,
)
# K0(x) + log(x) I0(x), and (K1(x) - 1/x - log(x) I1(x)) / x, in x**2 <= 1: 2**-58.0 and 2**-62.7.
K0 = (
    6.611783292269203e-12,
    1.2082657937226824e-09,
    1.6271068962670717e-07,
    1.4914719242859733e-05,
    0.0008460350907214381,
    0.02524892993216121,
    0.27898287891460316,
    0.11593151565841245,
)
K1 = (
    -4.222060739147268e-13,
    -8.870922669340531e-11,
    -1.403017186657923e-08,
    -1.5592887664192662e-06,
    -0.00011253607036725504,
    -0.0046421827664714435,
    -0.08537071972865079,
    -0.3079657578292062,
)
# (sqrt(x) exp(x) K_n(x) - sqrt(pi/2)) x in 1/x <= 1, errors of K_n 2**-58.5 and 2**-57.9 (P/Q).
K0_FAR_P = (
    -0.0035398013980789994,
    -0.8181989779925986,
    -10.055201075691192,
    -37.158531047310895,
    -57.19271052478757,
    -41.726885843395834,
    -14.985462686514278,
    -2.521900386052007,
    -0.15666426716443402,
)
K0_FAR_Q = (
    1.1601432736402228,
    24.981577914034695,
    154.70394464442685,
    398.2809675801618,
    494.88001273296646,
    316.2281566309969,
    104.43865748199079,
    16.65998305530171,
    1.0,
)
K1_FAR_P = (
    0.03072298424620851,
    2.4905892389076834,
    27.786913505294343,
    101.00725275171986,
    156.78861566427594,
    116.55478181287683,
    42.833555374515555,
    7.38596476943939,
    0.46999280149330736,
)
K1_FAR_Q = (
    0.43894507860862,
    13.181038353851392,
    99.19424840710879,
    291.3133619809463,
    398.41652072482634,
    273.95461730979235,
    95.8717948442424,
    16.027559349781765,
    1.0,
)
NEAR = I0, I1
FAR = I0_FAR, I1_FAR
K_FAR = (K0_FAR_P, K0_FAR_Q), (K1_FAR_P, K1_FAR_Q)
#: (y, c) for y (1 - c), c so small that it is known to a few bits.
Corrected: TypeAlias = "tuple[hl.Expr, hl.Expr]"
#: Beyond it the exponential is infinite, or 0, whatever stands beside it.
LARGEST = 750.0


@in_binary64
def i0(x: hl.Expr) -> hl.Expr:
    return _i(x, 0)


@in_binary64
def i1(x: hl.Expr) -> hl.Expr:
    return _i(x, 1)


@in_binary64
def i0e(x: hl.Expr) -> hl.Expr:
    """exp(-|x|) I0(x)."""
    return _scaled_i(x, 0)


@in_binary64
def i1e(x: hl.Expr) -> hl.Expr:
    """exp(-|x|) I1(x)."""
    return _scaled_i(x, 1)


@in_binary64
def modified_bessel_k0(x: hl.Expr) -> hl.Expr:
    """K0: inf at 0, NaN for negative x."""
    return _domain(x, hl.select(x <= hl.f64(1), _rounded(_near_k0(x)), _decaying(x, _far_k(x, 0))))


@in_binary64
def modified_bessel_k1(x: hl.Expr) -> hl.Expr:
    """K1: inf at 0, NaN for negative x."""
    return _domain(x, hl.select(x <= hl.f64(1), _near_k1(x), _decaying(x, _far_k(x, 1))))


@in_binary64
def scaled_modified_bessel_k0(x: hl.Expr) -> hl.Expr:
    """exp(x) K0(x)."""
    return _domain(x, hl.select(x <= hl.f64(1), _growing(at_most(x, 1.0), _near_k0(x)), _rounded(_far_k(x, 0))))


@in_binary64
def scaled_modified_bessel_k1(x: hl.Expr) -> hl.Expr:
    """exp(x) K1(x)."""
    return _domain(x, hl.select(x <= hl.f64(1), _growing(at_most(x, 1.0), _exact(_near_k1(x))), _rounded(_far_k(x, 1))))


def _i(x: hl.Expr, order: int) -> hl.Expr:
    a = hl.abs(x)
    bounded = at_most(a, LARGEST)
    far = _growing(bounded, _far_i(bounded, order))
    return hl.select(
        a < hl.f64(8), _near_i(x, order), far if order == 0 else hl.select(x < hl.f64(0), negate(far), far)
    )


def _scaled_i(x: hl.Expr, order: int) -> hl.Expr:
    a = hl.abs(x)
    far = _rounded(_far_i(a, order))
    near = _decaying(at_most(a, 8.0), _exact(_near_i(x, order)))
    return hl.select(a < hl.f64(8), near, _signed(x, far, order))


def _signed(x: hl.Expr, value: hl.Expr, order: int) -> hl.Expr:
    return value if order == 0 else hl.select(x < hl.f64(0), negate(value), value)


def _near_i(x: hl.Expr, order: int) -> hl.Expr:
    """I_n(x) for |x| <= 8."""
    small, constant = _near_ratio(x, order)
    ratio = small + hl.f64(constant)
    return ratio if order == 0 else x * ratio


def _near_ratio(x: hl.Expr, order: int) -> tuple[hl.Expr, float]:
    """I_n(x) / x**n for |x| <= 8 as a sum; the slope makes up for the rounding of x**2."""
    z = x * x
    x_head = head(x)
    rest = (x_head * x_head - z) + (x - x_head) * (x + x_head)
    *leading, constant = NEAR[order]
    value, slope = hl.f64(leading[0]), hl.f64(0)
    for c in leading[1:]:
        slope = slope * z + value
        value = value * z + hl.f64(c)
    return value * z + (slope * z + value) * rest, constant


def _far_i(a: hl.Expr, order: int) -> Corrected:
    """exp(-a) I_n(a) for a >= 8."""
    *leading, constant = FAR[order]
    w = quotient(hl.f64(1), a) - hl.f64(1 / 16)
    return _over_root(w * polynomial(w, leading), constant, a)


def _near_k0(x: hl.Expr) -> Corrected:
    """K0(x) for 0 < x <= 1, where neither term is negative; what its product and sums round off is kept."""
    z = x * x
    *leading, last = K0
    rest, logarithm = z * polynomial(z, leading), negate(log(x))
    small = rest + hl.f64(last)
    added = small - rest
    above, constant = _near_ratio(x, 0)
    i = above + hl.f64(constant)
    product = logarithm * i
    logarithm_head, i_head = head(logarithm), head(i)
    excess = (logarithm_head * i_head - product) + logarithm_head * (i - i_head) + (logarithm - logarithm_head) * i
    total = small + product
    part = total - small
    lost = (small - (total - part)) + (product - part) + (excess + logarithm * (above - (i - hl.f64(constant))))
    lost = lost + ((rest - (small - added)) + (hl.f64(last) - added))
    return total, negate(quotient(lost, total))


def _near_k1(x: hl.Expr) -> hl.Expr:
    """K1(x) for 0 < x <= 1."""
    return quotient(hl.f64(1), x) + (x * polynomial(x * x, K1) + log(x) * _near_i(x, 1))


def _far_k(x: hl.Expr, order: int) -> Corrected:
    """exp(x) K_n(x) for x >= 1."""
    p, q = K_FAR[order]
    u = quotient(hl.f64(1), x)
    return _over_root(u * (polynomial(u, p) / polynomial(u, q)), math.sqrt(math.pi / 2), x)


def _over_root(small: hl.Expr, constant: float, x: hl.Expr) -> Corrected:
    """(small + constant) / sqrt(x), |small| < constant: what the sum, the root and the quotient round off is kept."""
    total = small + hl.f64(constant)
    lost = small - (total - hl.f64(constant))
    root = hl.sqrt(x)
    y = quotient(total, root)
    y_head, root_head = head(y), head(root)
    quotient_excess = ((y_head * root_head - total) + y_head * (root - root_head)) + (y - y_head) * root
    root_excess = (root_head * root_head - x) + (root - root_head) * (root + root_head)
    c = (quotient_excess - lost) / total - quotient(root_excess * hl.f64(0.5), x)
    # At infinity y is 0 and c is NaN.
    return y, hl.select(x < hl.f64(math.inf), c, hl.f64(0))


def _exact(y: hl.Expr) -> Corrected:
    return y, hl.f64(0)


def _rounded(value: Corrected) -> hl.Expr:
    y, c = value
    return y - y * c


def _growing(x: hl.Expr, factor: Corrected) -> hl.Expr:
    """factor exp(x), |x| <= LARGEST; leaves the range only where the product does."""
    y, c = factor
    k, r = reduce_exponential(x)
    growth = r * r * polynomial(r, EXP_64) + r
    return times_power_of_two(y * (growth - (growth * c + c)) + y, k)


def _decaying(x: hl.Expr, factor: Corrected) -> hl.Expr:
    """factor exp(-x), x >= 0."""
    return _growing(at_least(negate(x), -LARGEST), factor)


def _domain(x: hl.Expr, value: hl.Expr) -> hl.Expr:
    edge = hl.select(x == hl.f64(0), hl.f64(math.inf), hl.f64(math.nan))
    return hl.select(x > hl.f64(0), value, edge)
