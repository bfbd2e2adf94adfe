"""The modified Bessel functions I0, I1, K0, K1 and their exponentially scaled forms, in binary64.

I_n(x) / x**n is rational in x**2 up to 8, sqrt(x) exp(-x) I_n(x) a polynomial in 1/x beyond. K_n has a logarithm
times I_n up to 1 (DLMF 10.31) and is exp(-x) / sqrt(x) times a rational function of 1/x beyond (DLMF 10.40).
Coefficients by tests/algorithm/mathematics/special_fits.py. binary32 results are those of binary64, rounded.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.algorithm.mathematics.exponential import exponential_of_remainder, reduce_exponential
from halide_backend.algorithm.mathematics.floating_point import (
    at_least,
    at_most,
    in_binary64,
    negate,
    times_power_of_two,
)
from halide_backend.algorithm.mathematics.logarithm import log
from halide_backend.algorithm.mathematics.polynomial import polynomial

# I_n(x) / x**n in x**2 <= 64, relative errors 2**-64.7 and 2**-67.8 (P/Q).
I0_P = (
    2.5637490360909915e-19,
    3.8954809581682715e-16,
    2.6974452541316794e-13,
    1.0718574920001791e-10,
    2.590383452438506e-08,
    3.784773053646716e-06,
    0.0003173031395937197,
    0.013668384577677934,
    0.24205335795791674,
    1.0,
)
I0_Q = (
    4.484130416768233e-17,
    -9.82677523788372e-14,
    1.0499063337619604e-10,
    -6.962832619545919e-08,
    3.0045088198751445e-05,
    -0.00794664204208327,
    1.0,
)
I1_P = (
    1.0426486352981944e-20,
    1.7949289731791023e-17,
    1.4256677618458903e-14,
    6.6050150247799506e-12,
    1.901726736360399e-09,
    3.4091373501758493e-07,
    3.6581002451047646e-05,
    0.0021547545011222397,
    0.05880094621031078,
    0.5,
)
I1_Q = (
    2.7484969052120804e-17,
    -6.600837278955554e-14,
    7.699519852571307e-11,
    -5.551877476783592e-08,
    2.5939116333450628e-05,
    -0.007398107579378435,
    1.0,
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
# sqrt(x) exp(x) K_n(x) in 1/x <= 1, relative errors 2**-61.4 and 2**-60.7 (P/Q).
K0_FAR_P = (
    0.0841944553123269,
    7.2431913741921425,
    98.7433115543205,
    461.6015464381005,
    960.6746586718958,
    1003.4748957250673,
    553.7009237014188,
    161.1328463044881,
    23.01525941362826,
    1.2533141373155003,
)
K0_FAR_Q = (
    0.2169879017128232,
    9.830753204532387,
    105.61244860179838,
    437.0163399943729,
    848.3418602264073,
    849.8159877892627,
    456.91345679104256,
    130.80616282319815,
    18.488520149006796,
    1.0,
)
K1_FAR_P = (
    0.496434064270158,
    16.84725545160572,
    151.53050667976999,
    563.989781515986,
    1035.5189673247203,
    1014.7231132229834,
    545.0407358258306,
    157.79404827452606,
    22.70023219771352,
    1.2533141373155003,
)
K1_FAR_Q = (
    0.0332673325707985,
    3.5618123365255117,
    53.95631646100845,
    273.4297756969314,
    609.1216651920245,
    674.9108427256295,
    392.0929284590726,
    119.36718560587764,
    17.737164797195717,
    1.0,
)
NEAR = (I0_P, I0_Q), (I1_P, I1_Q)
FAR = I0_FAR, I1_FAR
K_FAR = (K0_FAR_P, K0_FAR_Q), (K1_FAR_P, K1_FAR_Q)
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
    return _domain(x, hl.select(x <= hl.f64(1), _near_k0(x), _decaying(x, _far_k(x, 0))))


@in_binary64
def modified_bessel_k1(x: hl.Expr) -> hl.Expr:
    """K1: inf at 0, NaN for negative x."""
    return _domain(x, hl.select(x <= hl.f64(1), _near_k1(x), _decaying(x, _far_k(x, 1))))


@in_binary64
def scaled_modified_bessel_k0(x: hl.Expr) -> hl.Expr:
    """exp(x) K0(x)."""
    return _domain(x, hl.select(x <= hl.f64(1), _growing(at_most(x, 1.0), _near_k0(x)), _far_k(x, 0)))


@in_binary64
def scaled_modified_bessel_k1(x: hl.Expr) -> hl.Expr:
    """exp(x) K1(x)."""
    return _domain(x, hl.select(x <= hl.f64(1), _growing(at_most(x, 1.0), _near_k1(x)), _far_k(x, 1)))


def _i(x: hl.Expr, order: int) -> hl.Expr:
    a = hl.abs(x)
    far = _growing(at_most(a, LARGEST), _far_i(a, order))
    return hl.select(
        a < hl.f64(8), _near_i(x, order), far if order == 0 else hl.select(x < hl.f64(0), negate(far), far)
    )


def _scaled_i(x: hl.Expr, order: int) -> hl.Expr:
    a = hl.abs(x)
    far = _far_i(a, order)
    near = _decaying(at_most(a, 8.0), _near_i(x, order))
    return hl.select(a < hl.f64(8), near, _signed(x, far, order))


def _signed(x: hl.Expr, value: hl.Expr, order: int) -> hl.Expr:
    return value if order == 0 else hl.select(x < hl.f64(0), negate(value), value)


def _near_i(x: hl.Expr, order: int) -> hl.Expr:
    """I_n(x) for |x| <= 8."""
    p, q = NEAR[order]
    z = x * x
    ratio = polynomial(z, p) / polynomial(z, q)
    return ratio if order == 0 else x * ratio


def _far_i(a: hl.Expr, order: int) -> hl.Expr:
    """exp(-a) I_n(a) for a >= 8."""
    return polynomial(hl.f64(1) / a - hl.f64(1 / 16), FAR[order]) / hl.sqrt(a)


def _near_k0(x: hl.Expr) -> hl.Expr:
    """K0(x) for 0 < x <= 1, where neither term is negative."""
    return polynomial(x * x, K0) - log(x) * _near_i(x, 0)


def _near_k1(x: hl.Expr) -> hl.Expr:
    """K1(x) for 0 < x <= 1."""
    return hl.f64(1) / x + (x * polynomial(x * x, K1) + log(x) * _near_i(x, 1))


def _far_k(x: hl.Expr, order: int) -> hl.Expr:
    """exp(x) K_n(x) for x >= 1."""
    p, q = K_FAR[order]
    u = hl.f64(1) / x
    return polynomial(u, p) / polynomial(u, q) / hl.sqrt(x)


def _growing(x: hl.Expr, factor: hl.Expr) -> hl.Expr:
    """factor exp(x); overflows only where the product does. 0 <= x <= LARGEST."""
    k, r = reduce_exponential(x)
    return times_power_of_two(exponential_of_remainder(r) * factor, k)


def _decaying(x: hl.Expr, factor: hl.Expr) -> hl.Expr:
    """factor exp(-x), x >= 0."""
    k, r = reduce_exponential(at_least(negate(x), -LARGEST))
    return times_power_of_two(exponential_of_remainder(r) * factor, k)


def _domain(x: hl.Expr, value: hl.Expr) -> hl.Expr:
    edge = hl.select(x == hl.f64(0), hl.f64(math.inf), hl.f64(math.nan))
    return hl.select(x > hl.f64(0), value, edge)
