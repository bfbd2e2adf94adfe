"""The Airy function Ai.

exp(-zeta) times a rational function of 1/zeta above 1 (DLMF 9.7.5), a polynomial down to -2.09, cosine and sine of
zeta below (DLMF 9.7.9), zeta = 2/3 |x|**(3/2) in two parts. Next to the zeros the absolute error stays. Coefficients by
tests/kernel_library/mathematics/special_fits.py; those of cosine and sine are Cephes's, in binary64 with torch's error
(`cephes.py`).
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.cephes import denominator
from halide_backend.kernel_library.mathematics.exponential import EXP_64, reduce_exponential
from halide_backend.kernel_library.mathematics.floating_point import (
    FloatFormat,
    at_most,
    float_format,
    head,
    negate,
    quotient,
    times_power_of_two,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial
from halide_backend.kernel_library.mathematics.trigonometric import sine_and_cosine

# 2 sqrt(pi) x**(1/4) exp(zeta) Ai(x) in 1/zeta for x >= 1, relative error 2**-58.1 (P/Q).
DECAY_P = (
    0.022659354475050384,
    1.9077734364360597,
    29.685777965437335,
    162.23407834143003,
    395.1233731914995,
    479.9997062684111,
    305.3180114066534,
    101.44578422725412,
    16.386675241369442,
    1.0,
)
DECAY_Q = (
    0.042649844919837046,
    2.610288341310507,
    35.52422908298945,
    180.53313592141663,
    421.2186025161229,
    498.4165828242118,
    311.86655890601406,
    102.5514368288938,
    16.45611968581388,
    1.0,
)
# Ai(x) in x + 1, -3 <= x <= 1: 2**-56.1.
CENTER = (
    -3.704473598314917e-17,
    -1.4641407057725841e-16,
    4.429918391648406e-15,
    -1.349743429053681e-14,
    -1.7473570626423935e-13,
    1.846495312619865e-12,
    -3.0548679307247723e-12,
    -6.930778853827435e-11,
    5.582885760212435e-10,
    -3.7703715001109776e-10,
    -1.921624990290002e-08,
    1.1477430042068868e-07,
    3.5570430229528675e-08,
    -3.4617891247840204e-06,
    1.4443037225140512e-05,
    1.9138336198866776e-05,
    -0.00036165849838117986,
    0.0009382148504272613,
    0.002316175073027505,
    -0.017936700835748814,
    0.02146832287746013,
    0.09095357506817033,
    -0.267780441646176,
    -0.010160567116645368,
    0.5355608832923521,
)
# (P - 1) zeta**2 and Q zeta in 1/zeta**2 <= 1/4, x < -2.09, of Cephes's airy.c; denominators without their leading 1.
COSINE_P = (
    -0.1316963234183318,
    -0.6264565444319123,
    -0.6931580360369335,
    -0.2797799815451191,
    -0.04919001326095003,
    -0.004062659235948854,
    -0.0001592764962392621,
    -2.776491081552329e-06,
    -1.6778769848911465e-08,
)
COSINE_Q = (
    13.356042070655324,
    32.682503279522464,
    26.736704094149957,
    9.187074029072596,
    1.4752914677166642,
    0.11568717379518804,
    0.004402916416152112,
    7.547203482874142e-05,
    4.5185009297058035e-07,
)
SINE_P = (
    0.01973399320916857,
    0.39110302961568827,
    1.0657989759959559,
    0.9391692298166502,
    0.35146565610554764,
    0.06338889196289255,
    0.005858041130483885,
    0.000282851600836737,
    6.98793669997261e-06,
    8.117892395543892e-08,
    3.415517847659236e-10,
)
SINE_Q = (
    9.30892908077442,
    19.835292871831214,
    15.564662893286462,
    5.476860694229755,
    0.9542936116189619,
    0.08645808263523921,
    0.004126565238242226,
    0.00010125908511650914,
    1.1716673321441352e-06,
    4.9183457006293e-09,
)
#: 2/3: a head of 26 bits and the rest.
TWO_THIRDS = (0.6666666567325592, 9.934107462565104e-09)


#: Where the oscillation takes over, as in torch.
OSCILLATING = -2.09


def airy_ai(x: hl.Expr) -> hl.Expr:
    """Ai(x), NaN at both infinities as torch has it."""
    f = float_format(x)
    wide = hl.cast(hl.Float(64), x)
    a = hl.abs(wide)
    root = hl.sqrt(a)
    center = polynomial(wide + 1, CENTER)
    right = _decaying(at_most(a, 120.0))
    left = _oscillating(a, root, f)
    value = hl.select(wide > hl.f64(1), right, hl.select(wide < hl.f64(OSCILLATING), left, center))
    return hl.cast(f.float_type, hl.select(a < hl.f64(math.inf), value, hl.f64(math.nan)))


def _decaying(a: hl.Expr) -> hl.Expr:
    """Ai(a) for 1 <= a <= 120."""
    root = hl.sqrt(a)
    high, low = _zeta(a, root)
    u = quotient(hl.f64(1), high + low)
    k, r = reduce_exponential(negate(high), negate(low))
    scale = quotient(hl.f64(0.5 / math.sqrt(math.pi)), hl.sqrt(root))
    factor = polynomial(u, DECAY_P) / polynomial(u, DECAY_Q) * scale
    growth = r * r * polynomial(r, EXP_64) + r
    return times_power_of_two(factor * growth + factor, k)


def _oscillating(a: hl.Expr, root: hl.Expr, f: FloatFormat) -> hl.Expr:
    """Ai(-a) for a >= 2.09; NaN where zeta overflows."""
    high, low = _zeta(a, root)
    zeta = high + low
    rest = low - (zeta - high)
    # Beyond 2**53 the angle is not known to one turn: any value of the right size is as good.
    rest = hl.select(hl.abs(rest) < hl.f64(1), rest, hl.f64(0))
    u = quotient(hl.f64(1), zeta)
    v = u * u
    sine, cosine = sine_and_cosine(zeta)
    sine, cosine = sine + rest * cosine, cosine - rest * sine
    p = v * polynomial(v, COSINE_P) / polynomial(v, denominator(COSINE_Q, f)) + 1
    q = polynomial(v, SINE_P) / polynomial(v, denominator(SINE_Q, f)) * u
    # cos(zeta - pi/4) and sin(zeta - pi/4), each times sqrt(2)
    wave = p * (cosine + sine) + q * (sine - cosine)
    value = quotient(wave * hl.f64(1 / math.sqrt(2 * math.pi)), hl.sqrt(root))
    return hl.select(zeta < hl.f64(math.inf), value, hl.f64(math.nan))


def _zeta(a: hl.Expr, root: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(high, low): 2/3 a sqrt(a) beyond the format, high exact in few bits; root = sqrt(a)."""
    a_head, root_head = head(a), head(root)
    defect = (a - root_head * root_head) - (root - root_head) * (root + root_head)
    missing = quotient(defect * hl.f64(0.5), root)
    exact = a_head * root_head
    rest = (a - a_head) * root + a_head * (root - root_head) + a * missing
    exact_head = head(exact)
    two_thirds, fine = (hl.f64(c) for c in TWO_THIRDS)
    low = ((exact - exact_head) + rest) * hl.f64(2 / 3) + exact_head * fine
    return exact_head * two_thirds, low
