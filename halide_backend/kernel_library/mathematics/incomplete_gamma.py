"""The regularised incomplete gamma functions P (gammainc) and Q (gammaincc), in binary64; binary32 results are those
rounded.

Below a = 200: P by its series (DLMF 8.11.4) for x <= a or x < 1.5, Q by its continued fraction (8.9.2) elsewhere, both
from their last term back in one loop of fixed length; the other one is 1 less that, but Q by its own series (8.7.3) for
x < 1.5 and a < 1. Above: Temme's uniform expansion (8.12.3-4) with polynomials for its coefficients. Coefficients by
tests/kernel_library/mathematics/incomplete_gamma_fits.py.

The loop is an update definition, whose Func needs the variables that the arguments depend on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import halide as hl

from halide_backend.kernel_library.mathematics.error_function import erfc_center, erfc_tail
from halide_backend.kernel_library.mathematics.exponential import EXP_64, expm1, reduce_exponential
from halide_backend.kernel_library.mathematics.floating_point import (
    at_least,
    at_most,
    head,
    in_binary64,
    is_nan,
    negate,
    positive_normal,
    quotient,
    split_exponent,
    times_power_of_two,
)
from halide_backend.kernel_library.mathematics.gamma import LGAMMA_P, LGAMMA_Q
from halide_backend.kernel_library.mathematics.logarithm import LN2, log, log2_in_two_parts, log_correction
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# (a + 1/2)**(a + 1/2) exp(-a) / gamma(a + 1) in 1 / (a + 1/2), a <= 200, relative error 2**-54.8 (P/Q).
SCALE_P = (
    0.105287219253189,
    4.382657922705127,
    50.22451166741485,
    241.51787015247234,
    596.8025720827452,
    850.4086493594516,
    739.3082059021815,
    399.20181492362286,
    127.98252133628228,
    21.385423584128493,
    0.6577446234794567,
)
SCALE_Q = (
    0.11428965293522117,
    5.137160466535018,
    64.42041139078127,
    333.0167055461066,
    855.8744060541596,
    1247.0759912716449,
    1098.9638245414444,
    598.8484744652018,
    193.22397849007442,
    32.47159580745275,
    1.0,
)
# Temme's c_k in eta <= 2.75, errors 2**-56.4, 2**-47.6, 2**-39.4, 2**-30.7, 2**-23.6.
TEMME_0 = (
    -3.8470219879770804e-23,
    7.048393572017933e-22,
    4.154891616782512e-22,
    -4.6320404661937716e-20,
    8.88034817518098e-20,
    1.2579234540942755e-18,
    -4.154931724256736e-18,
    -1.6514592744143438e-17,
    8.338047204184661e-17,
    6.883651130329716e-17,
    -8.088543965737755e-16,
    6.074591803365937e-16,
    2.136143296483018e-15,
    -5.723958083589013e-16,
    9.052620019279475e-15,
    -1.3528775508099698e-13,
    4.0687001641064656e-13,
    8.847200377673235e-14,
    -5.216679997007654e-12,
    2.4430673756590186e-11,
    -5.792114776250471e-11,
    -2.5661728231907575e-11,
    9.141819268381807e-10,
    -4.38181612112664e-09,
    1.0262459633557692e-08,
    6.70762777493851e-09,
    -1.7666003076478793e-07,
    8.296712885871451e-07,
    -1.8540619517700907e-06,
    -2.1854485769782963e-06,
    3.919263170393831e-05,
    -0.0001787551440168543,
    0.00035273368608051346,
    0.0011574074074055972,
    -0.014814814814815705,
    0.0833333333333334,
    -0.3333333333333333,
)

TEMME_1 = (
    5.937355225663259e-20,
    9.200018116218637e-19,
    -7.599471877107456e-18,
    -4.602213768842241e-17,
    3.445290436841421e-16,
    8.119069103473927e-16,
    -7.868224294227362e-15,
    -2.6050169202107655e-15,
    9.55169810076473e-14,
    -9.890655317229559e-14,
    -4.887712643580575e-13,
    1.0226399276576773e-12,
    -6.615504022701941e-13,
    4.994301225697061e-12,
    -7.649416859047996e-12,
    -7.81729860938334e-11,
    4.3541515054413227e-10,
    -1.0269950134080151e-09,
    -5.1884039246754663e-11,
    1.1981193562866463e-08,
    -5.7481960146835794e-08,
    1.3783012883617046e-07,
    4.609778838269164e-09,
    -1.6120659191771878e-06,
    7.649181306289937e-06,
    -1.8098560864081895e-05,
    -4.018839376693459e-07,
    0.00020576131926225278,
    -0.0009902263365129235,
    0.002645502645289679,
    -0.003472222222263346,
    -0.0018518518518487227,
)

TEMME_2 = (
    2.096013468820709e-16,
    7.427891776644738e-16,
    -1.5250819012357716e-14,
    -2.3180040935526753e-14,
    4.578130577443252e-13,
    3.2332462247106164e-14,
    -7.052143431190618e-12,
    7.653907018598908e-12,
    5.189336038131811e-11,
    -1.1468495904055783e-10,
    -5.293022137046324e-11,
    2.773724423856585e-10,
    -7.912757535382238e-10,
    5.382040426121743e-09,
    -1.5361378176603387e-08,
    1.5146548071764128e-09,
    1.4470778106734516e-07,
    -6.321649512380005e-07,
    1.370341680365442e-06,
    3.6074980639762765e-08,
    -1.2759546452717424e-05,
    5.292261504461078e-05,
    -0.00010736686801054445,
    2.0095626395690125e-06,
    0.000771604979351301,
    -0.002681327171298432,
    0.004133597882757269,
)

TEMME_3 = (
    1.8918446312294424e-14,
    -3.813996908347855e-12,
    1.1420858268392793e-11,
    1.2880624364123543e-10,
    -4.964123249811107e-10,
    -1.3598225096564313e-09,
    7.877622374931204e-09,
    -7.385472521623505e-10,
    -4.618194452353386e-08,
    9.13154932170306e-08,
    -9.21535816934384e-08,
    -3.534702384965912e-08,
    1.2874253333361758e-06,
    -5.615558825303556e-06,
    1.1220507240702026e-05,
    -2.8990114906160577e-07,
    -7.568987029357695e-05,
    0.0002677391571574628,
    -0.0004691748295694676,
    0.0002294701539148628,
    0.0006494336585360495,
)

TEMME_4 = (
    -2.366698924486598e-10,
    -1.5723504239428735e-09,
    1.3210871008171003e-08,
    3.190395980852196e-08,
    -2.5789840003683245e-07,
    -5.5143842634022786e-08,
    2.055246728322999e-06,
    -2.675943914836232e-06,
    -2.8575518592338056e-06,
    1.3638628178208436e-05,
    -3.599136866152633e-05,
    6.409548398238309e-05,
    -3.6199861949356006e-06,
    -0.0002982125574899259,
    0.0007844116816576837,
    -0.000861938756589594,
)

#: Where Temme's expansion takes over: five of its coefficients are enough from there.
LARGE = 200
TEMME = TEMME_0, TEMME_1, TEMME_2, TEMME_3, TEMME_4
#: Beyond it exp(-a eta**2 / 2) is 0 for a >= LARGE.
LARGEST_ETA = 2.75
#: Steps that the series takes next to x = a = LARGE, and more than the continued fraction needs from x = SMALL on.
STEPS = 126
SMALL = 0.8
#: Terms of Q's series, x <= SMALL.
TERMS = 18
#: Where exponentials are 0.
LOWEST = -800.0
#: Temme's mu below which the logarithm's cancellation is avoided, and a from which other mu give 0 or 1.
NEAR = 0.05
IMMENSE = 1e7


def gammainc(a: hl.Expr, x: hl.Expr, axes: Sequence[hl.Var]) -> hl.Expr:
    """P(a, x): NaN for negative arguments, two zeros and two infinities."""
    return _in_domain(a, x, axes, lower=True)


def gammaincc(a: hl.Expr, x: hl.Expr, axes: Sequence[hl.Var]) -> hl.Expr:
    """Q(a, x) = 1 - P(a, x)."""
    return _in_domain(a, x, axes, lower=False)


def _in_domain(a: hl.Expr, x: hl.Expr, axes: Sequence[hl.Var], lower: bool) -> hl.Expr:
    return in_binary64(lambda a, x: _edges(a, x, _inside(a, x, axes, lower), lower))(a, x)


def _edges(a: hl.Expr, x: hl.Expr, inside: hl.Expr, lower: bool) -> hl.Expr:
    """As torch has them: x = 0 and infinite arguments count more than NaN."""
    zero, inf, nan = hl.f64(0), hl.f64(math.inf), hl.f64(math.nan)
    none, full = (hl.f64(v) for v in ((0.0, 1.0) if lower else (1.0, 0.0)))
    value = hl.select(is_nan(a) | is_nan(x), nan, inside)
    value = hl.select(x == inf, hl.select(a == inf, nan, full), hl.select(a == inf, none, value))
    value = hl.select(a == zero, hl.select(x > zero, full, nan), hl.select(x == zero, none, value))
    return hl.select((a < zero) | (x < zero), nan, value)


def _inside(a: hl.Expr, x: hl.Expr, axes: Sequence[hl.Var], lower: bool) -> hl.Expr:
    """P (lower) or Q for 0 < a, x < inf."""
    large = a >= hl.f64(LARGE)
    below = hl.select(large, x < a, (x <= a) | (x < hl.f64(SMALL)))
    exponent = _exponent(a, x, hl.select(large, hl.f64(0), hl.f64(0.5)))
    few = _power_over_factorial(a, exponent) * _series_or_fraction(at_most(a, LARGE), x, axes)
    tail = hl.select(large, _temme(a, x, exponent), few)
    complement = hl.f64(1) - tail
    if lower:
        return hl.select(below, tail, complement)
    both_small = (a < hl.f64(1)) & (x < hl.f64(SMALL))
    return hl.select(both_small, _upper_series(a, x), hl.select(below, complement, tail))


def _exponent(a: hl.Expr, x: hl.Expr, shift: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(high, low): a log(x / w) + a - x beyond the format, at least LOWEST, w = a + shift."""
    normal, extra = positive_normal(x)
    w = a + shift
    w_rest = a - (w - shift)
    q = quotient(normal, w)
    q_head, w_head = head(q), head(w)
    missing = (((normal - q_head * w_head) - q_head * (w - w_head)) - (q - q_head) * w) - q * w_rest
    m, e = split_exponent(q)
    log_high, log_low = log2_in_two_parts(m, e + extra)
    a_head = head(a)
    exact = a_head * log_high
    exact_head = head(exact)
    ln2, (ln2_high, ln2_low) = hl.f64(math.log(2)), (hl.f64(c) for c in LN2)
    rest = (exact - exact_head) + ((a - a_head) * log_high + a * log_low)
    first = exact_head * ln2_high
    d, d_rest = _sum(a, negate(x))
    high, high_rest = _sum(first, d)
    low = rest * ln2 + exact_head * ln2_low + a * quotient(missing, normal) + (d_rest + high_rest)
    high, low = _sum(high, low)
    kept = high > hl.f64(LOWEST)
    return hl.select(kept, high, hl.f64(LOWEST)), hl.select(kept, low, hl.f64(0))


def _sum(a: hl.Expr, b: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(a + b rounded, what rounding has taken)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def _exponential(exponent: tuple[hl.Expr, hl.Expr], factor: hl.Expr) -> hl.Expr:
    """factor exp(high + low)."""
    k, r = reduce_exponential(*exponent)
    growth = r * r * polynomial(r, EXP_64) + r
    return times_power_of_two(factor * growth + factor, k)


def _power_over_factorial(a: hl.Expr, exponent: tuple[hl.Expr, hl.Expr]) -> hl.Expr:
    """D = x**a exp(-x) / gamma(a + 1) = (x / w)**a exp(a - x) s / sqrt(w), w = a + 1/2, a <= LARGE."""
    w = a + hl.f64(0.5)
    u = hl.f64(1) / w
    return _exponential(exponent, polynomial(u, SCALE_P) / polynomial(u, SCALE_Q) / hl.sqrt(w))


def _series_or_fraction(a: hl.Expr, x: hl.Expr, axes: Sequence[hl.Var]) -> hl.Expr:
    """P(a, x) / D for x <= a or x < SMALL, otherwise Q(a, x) / D; a <= LARGE.

    P = D (1 + x/(a+1) (1 + x/(a+2) (1 + ...))), Q = a D / (x+1-a + 1 (a-1)/(x+3-a + 2 (a-2)/(x+5-a + ...))).
    """
    below = (x <= a) | (x < hl.f64(SMALL))
    value = hl.Func("series_or_fraction")
    place = list(axes) if axes else ()
    value[place] = hl.select(below, hl.f64(1), x - a + (2 * STEPS + 1))
    r = hl.RDom([(0, STEPS)], "step")
    n = hl.cast(hl.Float(64), STEPS - r.x)
    inner = hl.Expr(value[place])
    over = hl.select(below, x * inner, n * (a - n))
    under = hl.select(below, a + n, inner)
    value[place] = hl.select(below, hl.f64(1), x - a + (n + n - 1)) + quotient(over, under)
    result = hl.Expr(value[place])
    return hl.select(below, result, quotient(a, result))


def _upper_series(a: hl.Expr, x: hl.Expr) -> hl.Expr:
    """Q(a, x) for a < 1 and x < SMALL."""
    a, x = at_most(a, 1.0), at_most(x, SMALL)
    log_gamma = a * (a - 1) * (polynomial(a + hl.f64(0.5), LGAMMA_P) / polynomial(a + hl.f64(0.5), LGAMMA_Q))
    power = expm1(a * log(x) - log_gamma)
    rest = hl.f64(0)
    for n in range(TERMS, 0, -1):
        rest = (rest + hl.f64((-1) ** n / math.factorial(n)) / (a + n)) * x
    return negate(power) - (power + 1) * (a * rest)


def _temme(a: hl.Expr, x: hl.Expr, exponent: tuple[hl.Expr, hl.Expr]) -> hl.Expr:
    """P(a, x) for x < a, otherwise Q(a, x); a >= LARGE."""
    a = at_least(a, LARGE)
    mu = (x - a) / a
    near = hl.abs(mu) < hl.f64(NEAR)
    # exp(-a eta**2 / 2) from eta itself where x - a would cancel against the logarithm, and for immense arguments.
    direct = at_least(a * log_correction(hl.select(near, mu, hl.f64(0))), LOWEST)
    high = hl.select(near, direct, hl.select(a < hl.f64(IMMENSE), exponent[0], hl.f64(LOWEST)))
    low = hl.select(near | (a >= hl.f64(IMMENSE)), hl.f64(0), exponent[1])
    z = hl.sqrt(negate(high))
    error = hl.select(z < hl.f64(0.85), erfc_center(z), erfc_tail(at_least(z, 0.5), negate(high), negate(low)))
    u = hl.f64(1) / a
    below = x < a
    eta = at_most(z * hl.sqrt(u + u), LARGEST_ETA)
    eta = hl.select(below, negate(eta), eta)
    series = polynomial(eta, TEMME[-1])
    for coefficients in TEMME[-2::-1]:
        series = series * u + polynomial(eta, coefficients)
    rest = _exponential((high, low), series * hl.sqrt(u * hl.f64(0.5 / math.pi)))
    return error * hl.f64(0.5) + hl.select(below, negate(rest), rest)
