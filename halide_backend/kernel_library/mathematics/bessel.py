"""The Bessel functions J0, J1, Y0, Y1 and the spherical j0.

Up to 5, J_n is a polynomial times its first two zeros, Y_n a polynomial and 2/pi log(x) J_n (DLMF 10.8); beyond, both
are cosines and sines of x (reduced as exactly as those of `trigonometric`) times Hankel's P and Q (DLMF 10.17). Next
to the other zeros the absolute error stays. Coefficients by tests/kernel_library/mathematics/special_fits.py; P and Q
are those of Cephes, in binary64 with torch's error (`cephes.py`).
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.cephes import denominator
from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    float_format,
    is_infinite,
    negate,
    quotient,
    quotient_of_sums,
)
from halide_backend.kernel_library.mathematics.logarithm import log
from halide_backend.kernel_library.mathematics.polynomial import polynomial
from halide_backend.kernel_library.mathematics.trigonometric import sine_and_cosine, sine_in_two_parts

# J_n(x) / x**n without its zeros below 8, in x**2 - 32, relative errors 2**-60.2 and 2**-63.0.
J0 = (
    3.298775797138939e-37,
    -3.382178797167505e-34,
    2.9427072203053402e-31,
    -2.2269653908020294e-28,
    1.445642225039656e-25,
    -7.943478261750218e-23,
    3.636923200914839e-20,
    -1.3612234095969733e-17,
    4.067022655745933e-15,
    -9.409614027211726e-13,
    1.6190720285413749e-10,
    -1.9578218525409324e-08,
    1.5269952779230138e-06,
    -6.624357154624037e-05,
    0.0011434937743762545,
)
J1 = (
    9.818259400756544e-39,
    -1.0597308775598877e-35,
    9.839248953565602e-33,
    -7.981207760827835e-30,
    5.581964056058368e-27,
    -3.324468165610435e-24,
    1.6615147344121758e-21,
    -6.845780457936149e-19,
    2.274776120437082e-16,
    -5.927960622054961e-14,
    1.16750465898663e-11,
    -1.65039161349045e-09,
    1.548829765563464e-07,
    -8.42975858348865e-06,
    0.00019498936985895625,
)
# Y0(x) - 2/pi log(x) J0(x), and (Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x, in x**2 - 32: 2**-61.1 and 2**-60.1.
Y0 = (
    -7.313174831731758e-37,
    7.127510365548859e-34,
    -6.039732348035951e-31,
    4.442755541720741e-28,
    -2.7916105637819466e-25,
    1.4769626662164787e-22,
    -6.465532005245215e-20,
    2.291240565345775e-17,
    -6.389874267616746e-15,
    1.3494586944980306e-12,
    -2.0392003558735943e-10,
    2.0032437990402218e-08,
    -1.0276295984474178e-06,
    4.398386343170921e-06,
    0.0016084926551509244,
    -0.025888621573764335,
    -0.382250654459425,
)
Y1 = (
    2.319059509233406e-35,
    -2.1171885849364115e-32,
    1.6722960713767682e-29,
    -1.1408536658915394e-26,
    6.607195482490241e-24,
    -3.1983305095383348e-21,
    1.2697208298366582e-18,
    -4.03649522415361e-16,
    9.960759023434602e-14,
    -1.8280704350319823e-11,
    2.340908921433248e-09,
    -1.8730010852747157e-07,
    7.173830934652635e-06,
    2.2819894258782696e-05,
    -0.007605544712247848,
    0.07075985882118005,
)
# Hankel's P and x Q / 5 in (5/x)**2 <= 1, of Cephes's j0.c and j1.c; Q's denominators without their leading 1.
P0_P = (
    0.0007969367292973471,
    0.08283523921074408,
    1.239533716464143,
    5.447250030587687,
    8.74716500199817,
    5.303240382353949,
    1.0,
)
P0_Q = (
    0.0009244088105588637,
    0.08562884743544745,
    1.2535274390105895,
    5.470977403304171,
    8.761908832370695,
    5.306052882353947,
    1.0,
)
Q0_P = (
    -0.011366383889846916,
    -1.2825271867050931,
    -19.553954425773597,
    -93.20601521237683,
    -177.68116798048806,
    -147.07750515495118,
    -51.41053267665993,
    -6.050143506007285,
)
Q0_Q = (
    64.3178256118178,
    856.4300259769806,
    3882.4018360540163,
    7240.467741956525,
    5930.727011873169,
    2062.0933166032783,
    242.0057402402914,
)
P1_P = (
    0.0007621256162081731,
    0.07313970569409176,
    1.1271960812968493,
    5.112079511468076,
    8.424045901417724,
    5.214515986823615,
    1.0,
)
P1_Q = (
    0.0005713231280725487,
    0.06884559087544954,
    1.105142326340617,
    5.073863861286015,
    8.399855543276042,
    5.209828486823619,
    1.0,
)
Q1_P = (
    0.05108625947501766,
    4.982138729512334,
    75.82382841325453,
    366.7796093601508,
    710.8563049989261,
    597.4896124006136,
    211.68875710057213,
    25.207020585802372,
)
Q1_Q = (
    74.23732770356752,
    1056.4488603826283,
    4986.410583376536,
    9562.318924047562,
    7997.041604473507,
    2826.1927851763908,
    336.0936078106983,
)
# The zeros of J0 and J1 below 8, each with the rest that binary64 leaves.
ZEROS_0 = (2.404825557695773, -1.176691651530894e-16), (5.520078110286311, 8.088597146146722e-17)
ZEROS_1 = (3.8317059702075125, -1.5269184090088067e-16), (7.015586669815619, -9.414165653410389e-17)
TWO_OVER_PI = 2 / math.pi
HANKEL = (P0_P, P0_Q, Q0_P, Q0_Q), (P1_P, P1_Q, Q1_P, Q1_Q)
#: Where Hankel's expansions take over, as in torch.
FAR = 5


def bessel_j0(x: hl.Expr) -> hl.Expr:
    a = _wide(hl.abs(x))
    return _rounded(x, hl.select(a <= hl.f64(FAR), _near_j0(a), _far(x, 0)[0]))


def bessel_j1(x: hl.Expr) -> hl.Expr:
    """J1, odd."""
    a = _wide(hl.abs(x))
    far = _far(x, 1)[0]
    far = hl.select(x < float_format(x).value(0), negate(far), far)
    return _rounded(x, hl.select(a <= hl.f64(FAR), _near_j1(_wide(x)), far))


def bessel_y0(x: hl.Expr) -> hl.Expr:
    """Y0: -inf at 0, NaN for negative x."""
    wide = _wide(x)
    near = polynomial(wide * wide - 32, Y0) + log(wide) * hl.f64(TWO_OVER_PI) * _near_j0(wide)
    return _rounded(x, _domain(wide, hl.select(wide <= hl.f64(FAR), near, _far(x, 0)[1])))


def bessel_y1(x: hl.Expr) -> hl.Expr:
    """Y1: -inf at 0, NaN for negative x."""
    wide = _wide(x)
    logarithmic = log(wide) * _near_j1(wide) - quotient(hl.f64(1), wide)
    near = wide * polynomial(wide * wide - 32, Y1) + logarithmic * hl.f64(TWO_OVER_PI)
    return _rounded(x, _domain(wide, hl.select(wide <= hl.f64(FAR), near, _far(x, 1)[1])))


def spherical_bessel_j0(x: hl.Expr) -> hl.Expr:
    """sin(x) / x; 1 at 0, 0 at infinity. The sine is not rounded before the division."""
    f, a = float_format(x), _wide(hl.abs(x))
    sine, rest = sine_in_two_parts(x)
    ratio = quotient(sine, a) if f is BINARY32 else quotient_of_sums(sine, rest, a, hl.f64(0))
    ratio = hl.select(a < hl.f64(2.0**-27), hl.f64(1), ratio)
    return _rounded(x, hl.select(is_infinite(x), hl.f64(0), ratio))


def _wide(x: hl.Expr) -> hl.Expr:
    return hl.cast(hl.Float(64), x)


def _rounded(x: hl.Expr, value: hl.Expr) -> hl.Expr:
    return hl.cast(float_format(x).float_type, value)


def _near_j0(x: hl.Expr) -> hl.Expr:
    """J0(x) for |x| <= 8."""
    return _at_zeros(hl.abs(x), ZEROS_0) * polynomial(x * x - 32, J0)


def _near_j1(x: hl.Expr) -> hl.Expr:
    """J1(x) for |x| <= 8."""
    return x * (_at_zeros(hl.abs(x), ZEROS_1) * polynomial(x * x - 32, J1))


def _at_zeros(a: hl.Expr, zeros: tuple[tuple[float, float], tuple[float, float]]) -> hl.Expr:
    """The product of a**2 - zero**2."""
    (z1, rest1), (z2, rest2) = zeros
    first = ((a - hl.f64(z1)) - hl.f64(rest1)) * (a + hl.f64(z1))
    return first * (((a - hl.f64(z2)) - hl.f64(rest2)) * (a + hl.f64(z2)))


def _far(x: hl.Expr, order: int) -> tuple[hl.Expr, hl.Expr]:
    """(J_n, Y_n) of |x| >= FAR, from cos(x - pi/4) = (cos x + sin x) / sqrt(2) and its like; NaN for infinity."""
    a = _wide(hl.abs(x))
    u = quotient(hl.f64(1), a)
    five = u * FAR
    v = five * five
    p_above, p_below, q_above, q_below = HANKEL[order]
    p = polynomial(v, p_above) / polynomial(v, p_below)
    q = polynomial(v, q_above) / polynomial(v, denominator(q_below, float_format(x))) * five
    sine, cosine = sine_and_cosine(x)
    both, difference = sine + cosine, sine - cosine
    scale = hl.select(a < hl.f64(math.inf), hl.sqrt(a * hl.f64(1 / math.pi)) * u, hl.f64(math.nan))
    if order == 0:
        return (p * both - q * difference) * scale, (p * difference + q * both) * scale
    return (p * difference + q * both) * scale, (q * difference - p * both) * scale


def _domain(x: hl.Expr, value: hl.Expr) -> hl.Expr:
    edge = hl.select(x == hl.f64(0), hl.f64(-math.inf), hl.f64(math.nan))
    return hl.select(x > hl.f64(0), value, edge)
