"""erf, erfc, erfcx.

erfc(a) = exp(-a**2) P(t)/(1 + 2 a), t = (a-4)/(a+4), for a >= 0.5; the square is split by `head`, so that the
exponential keeps its relative accuracy. Coefficients by tests/kernel_library/mathematics/fits.py.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.exponential import (
    EXP_32,
    EXP_64,
    growth_of_remainder,
    reduce_exponential,
    reduce_exponential_exactly,
    small_exponential,
)
from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    BINARY64,
    at_most,
    cube_in_two_parts,
    float_format,
    head,
    in_binary64,
    negate,
    power_of_two,
    quotient,
    remainder,
    sum_in_two_parts,
    times_power_of_two,
    with_sign_of,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial, polynomial_by_pairs

# Up to CENTER erf(x)/x is known in two parts. Below the others erfc and erfcx (binary32: erfc) come from it, above from
# the tail.
CENTER = 0.85
TAIL, TAIL_32 = 0.7, 0.5
# (erf(x) - x) / x in z = x**2 <= 0.81, relative error 2**-26.3 (P); less ERF_CUBIC z + 1/8, z <= 0.7226: 2**-58.0
# (P/Q).
ERF_32 = (
    -0.000609022424758399,
    0.005011941708961833,
    -0.026778901115079523,
    0.11282140921603755,
    -0.376125233395405,
    0.12837915380378148,
)
ERF_64_P = (
    8.019050721323891e-05,
    0.0021180773088699443,
    0.01912633332892349,
    0.11261374195722233,
    0.00025269753165166786,
    0.00337916709551257,
)
ERF_64_Q = (0.0002226470909714716, 0.005989199289189353, 0.06969787590572099, 0.408114344306748, 1.0)
ERF_CUBIC = -0.375
# (erf(x) - x) / x in z = x**2 <= 1.001, relative error 2**-62.7.
ERF_64 = (
    5.942514618224188e-11,
    -1.136407593803237e-09,
    1.4657477745143445e-08,
    -1.6349966891581206e-07,
    1.646096745894376e-06,
    -1.4925593182329584e-05,
    0.000120553310238064,
    -0.0008548326978395073,
    0.005223977624775041,
    -0.02686617064507232,
    0.11283791670954854,
    -0.3761263890318375,
    0.1283791670955126,
)
# -log(erfc(a)) on [0.9, 4], error of erfc relative to erf: 2**-26.2.
LOG_ERFC_32 = (
    1.6362289927838434e-05,
    -0.00036888108271984513,
    0.0037950161047071427,
    -0.02396459251921046,
    0.10623139385850881,
    0.6354449221188708,
    1.1283663663356083,
    8.490642947143197e-05,
)
# The same on [0.999, 6], error of erfc relative to erf: 2**-57.0.
LOG_ERFC_64 = (
    4.945938776046256e-12,
    -2.0517158944918832e-10,
    3.946476458981778e-09,
    -4.655903276150448e-08,
    3.7434959892795036e-07,
    -2.141568574214965e-06,
    8.692298259500947e-06,
    -2.2905537864557992e-05,
    2.0481730334165922e-05,
    0.0001346111208199253,
    -0.0007699357985759596,
    0.0019150499982137689,
    -0.00040975403699134946,
    -0.018990827220487966,
    0.10270379195721652,
    0.6366434957990806,
    1.1283741200969308,
    4.995580700023787e-07,
)
# (1 + 2 a) exp(a**2) erfc(a) in t = (a - 4)/(a + 4), a in [0.5, 28], relative error 2**-58.7.
SCALED_ERFC_64 = (
    -1.0026032782345559e-08,
    -1.2126326071096713e-08,
    1.0430900535036502e-07,
    6.675930217031869e-08,
    -8.207692632798929e-07,
    2.9986232966086396e-07,
    5.707332975003002e-06,
    -1.1224924563949885e-05,
    -2.4398395532759265e-05,
    0.0001506225680287512,
    -0.00019925688048529194,
    -0.0007577734656368435,
    0.005031970005376421,
    -0.016197734035889023,
    0.03716751553499741,
    -0.06633036581379594,
    0.09373283499847583,
    -0.10103906603624625,
    0.06809705425468969,
    0.015379652102618914,
    -0.1396211168405625,
    1.2329951186255526,
)
# What the rounding of the last coefficient took away; with it 2**-56.6 remain of the 2**-54.
SCALED_ERFC_REST = -4.6972475512783285e-17
# The same, a in [0.5, 11]: 2**-28.7.
SCALED_ERFC_32 = (
    0.005275108253532982,
    -0.016571740512456,
    0.036993050064223904,
    -0.06626260800191108,
    0.09376765116844586,
    -0.10104432417509279,
    0.06809456023494792,
    0.015379812734636714,
    -0.1396210693922145,
    1.2329951176632417,
)
# sqrt(pi) a exp(a**2) erfc(a) in 1/a**2: the asymptotic series (-1)**n (2n-1)!! / 2**n, from n = 7 down.
ERFC_SERIES = tuple((-0.5) ** n * math.prod(range(1, 2 * n, 2)) for n in range(7, -1, -1))


def erf(x: hl.Expr) -> hl.Expr:
    """x + x P(x**2) near 0, else 1 - erfc(|x|)."""
    a = hl.abs(x)
    if float_format(x) is BINARY64:
        return with_sign_of(_erf_64(a), x)
    complement = small_exponential(negate(polynomial(at_most(a, 4.0), LOG_ERFC_32)))
    large = with_sign_of(hl.f32(1) - complement, x)
    return hl.select(a < hl.f32(0.9), x * polynomial(x * x, ERF_32) + x, large)


def _erf_64(a: hl.Expr) -> hl.Expr:
    """erf(a) for a >= 0; beyond 1, 1 - erfc(a), which is less than a fifth of it and carries few rounding errors."""
    k, r = reduce_exponential(negate(polynomial_by_pairs(at_most(a, 6.0), LOG_ERFC_64)))
    power = power_of_two(k)
    large = (hl.f64(1) - power) - growth_of_remainder(r) * power
    return hl.select(a < hl.f64(1), a * polynomial_by_pairs(a * a, ERF_64) + a, large)


def _erf_center(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """erf(x) in two parts for |x| < CENTER; binary64. x + x/8 + ERF_CUBIC x**3 keeps its rounding errors."""
    z = x * x
    start, lost = sum_in_two_parts(x, x * hl.f64(0.125))
    high, low = cube_in_two_parts(x, ERF_CUBIC)
    total, missing = sum_in_two_parts(start, high)
    return total, (lost + missing) + (low + x * (polynomial(z, ERF_64_P) / polynomial(z, ERF_64_Q)))


def erfc_center(x: hl.Expr) -> hl.Expr:
    """erfc(x) for |x| < CENTER; binary64."""
    center, rest = _erf_center(x)
    total, missing = sum_in_two_parts(hl.f64(1), negate(center))
    return total + (missing - rest)


def _scaled_erfc(a: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(y, c): exp(a**2) erfc(a) = y (1 - c) for finite a >= 0.5; binary64.

    c: the rounding errors of the divisor 1/2 + a, of the polynomial's last sum and of the quotient.
    """
    half = hl.f64(0.5)
    d = a + half
    t = (a - 4) / (a + 4)
    small, constant = t * polynomial(t, SCALED_ERFC_64[:-1]), hl.f64(SCALED_ERFC_64[-1])
    s = small + constant
    y = s / d
    rest = (small - (s - constant)) + hl.f64(SCALED_ERFC_REST)
    return y * half, (half - (d - a)) / d - (remainder(s, y, d) + rest) / s


def erfc_tail(a: hl.Expr, square: hl.Expr, rest: hl.Expr) -> hl.Expr:
    """erfc(a) for 0.5 <= a <= 28; binary64. square + rest is a**2, beyond the format.

    One rounding of the size of the result: y exp(r) = y + y r + y (expm1(r) - r), the first sum and product in two
    parts.
    """
    k, coarse, fine = reduce_exponential_exactly(negate(square), negate(rest))
    r = coarse - fine
    bend = r * r * polynomial(r, EXP_64)
    y, c = _scaled_erfc(a)
    y_head, r_head = head(y), head(coarse)
    product = y_head * r_head
    total = y + product
    r_rest = (coarse - r_head) - fine
    missing = (product - (total - y)) + ((y - y_head) * r_head + y * (r_rest + (bend - (bend + r + 1) * c)))
    return times_power_of_two(total + missing, k)


def erfc(x: hl.Expr) -> hl.Expr:
    """1 - erf(x) near 0, its own tail beyond, 2 minus that for negative x."""
    single = float_format(x) is BINARY32
    if single:
        wide = hl.cast(hl.Float(64), x)
        a = at_most(hl.abs(wide), 10.5)
        y = polynomial((a - 4) / (a + 4), SCALED_ERFC_32) / (a * 2 + 1)
        k, r = reduce_exponential(negate(a * a))
        tail = y * ((r * r * polynomial(r, EXP_32) + r) + 1) * power_of_two(k)
        center = (hl.f64(1) - wide) - wide * polynomial(a * a, ERF_32)
    else:
        wide, a = x, at_most(hl.abs(x), 27.5)
        tail = erfc_tail(a, *square_in_two_parts(a))
        center = erfc_center(x)
    large = hl.select(wide < hl.f64(0), hl.f64(2) - tail, tail)
    return hl.cast(float_format(x).float_type, hl.select(a < hl.f64(TAIL_32 if single else TAIL), center, large))


@in_binary64
def erfcx(x: hl.Expr) -> hl.Expr:
    """exp(x**2) erfc(x); 2 exp(x**2) - erfcx(-x) for negative x."""
    a = hl.abs(x)
    square = square_in_two_parts(at_most(a, 30.0))
    k, r = reduce_exponential(*square)
    growth = r * r * polynomial(r, EXP_64) + r
    y, c = _scaled_erfc(a)
    u = quotient(hl.f64(1), a)
    far = u * hl.f64(1 / math.sqrt(math.pi)) * polynomial(u * u, ERFC_SERIES)
    tail = hl.select(a < hl.f64(25), y - y * c, far)
    near = erfc_center(x)
    center = times_power_of_two(near * growth + near, k)
    large = hl.select(x < hl.f64(0), times_power_of_two(growth * 2 + 2, k) - tail, tail)
    return hl.select(a < hl.f64(TAIL), center, large)


def square_in_two_parts(a: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(high, low): their sum is a**2 beyond the format, high exact in few bits."""
    h = head(a)
    return h * h, (a - h) * (a + h)
