"""erfinv, in binary64; binary32 results are those rounded."""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    head,
    in_binary64,
    negate,
    quotient,
    with_sign_of,
)
from halide_backend.kernel_library.mathematics.logarithm import log_in_two_parts
from halide_backend.kernel_library.mathematics.polynomial import polynomial

# erfinv(x) / x - 1 in r = 0.5625 - x**2, |x| <= 0.75, error 2**-63 (P/Q).
CENTER_P = (
    -0.0297936343214711,
    -0.6020069159405449,
    -3.0805937499873255,
    -6.090545555187677,
    -5.201124140026166,
    -1.672764737549285,
    0.047289210897128106,
    0.08455979679682472,
)
CENTER_Q = (
    0.03532173753316883,
    0.9656622961736244,
    6.855018822524514,
    19.89919406418349,
    28.035095133433742,
    20.263174414012777,
    7.21267721721511,
    1.0,
)
# 1 - erfinv(1 - exp(-s**2)) / s in s - 1.177, s <= 3, and in s - 2.999, s <= 6.07, errors 2**-57.5 (P/Q).
NEAR_P = (
    -2.5684994807506067e-07,
    2.5541380704490917e-05,
    0.004847386317997161,
    0.07361285348537651,
    0.3574170446263803,
    0.7663744983765588,
    0.7871452005715959,
    0.3092563420649757,
)
NEAR_Q = (
    0.002129629653642208,
    0.053226509969522544,
    0.4413916956922622,
    1.7536057966617906,
    3.8766530157938415,
    4.938410436643353,
    3.425239669469434,
    1.0,
)
FAR_P = (
    -1.3315962800797626e-09,
    2.2461848284808076e-07,
    8.311961338301994e-05,
    0.002389478127288333,
    0.021922801177521777,
    0.07822449415259955,
    0.09512529513974818,
)
FAR_Q = (
    3.2491528364740595e-05,
    0.0015017327873333148,
    0.02374249247596367,
    0.1763569115088486,
    0.6762176791868076,
    1.30217003954373,
    1.0,
)


@in_binary64
def erfinv(x: hl.Expr) -> hl.Expr:
    """Rational in 0.5625 - x**2 for |x| <= 0.75, in sqrt(-log(1 - |x|)) beyond; +-inf at +-1, NaN outside."""
    a = hl.abs(x)
    s, rest = root_of_logarithm(hl.f64(1) - a)
    tail = s - (s * tail_ratio(s) - rest)
    tail = hl.select(a < hl.f64(1), tail, hl.select(a == hl.f64(1), hl.f64(math.inf), hl.f64(math.nan)))
    return with_sign_of(hl.select(a <= hl.f64(0.75), erfinv_center(a), tail), x)


def root_of_logarithm(p: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(high, low): sqrt(-log(p)) beyond the format for 0 < p < 1."""
    high, low = log_in_two_parts(p)
    s = hl.sqrt(negate(high + low))
    s_head = head(s)
    missing = ((negate(high) - s_head * s_head) - (s - s_head) * (s + s_head)) - low
    return s, quotient(missing * hl.f64(0.5), s)


def erfinv_center(x: hl.Expr) -> hl.Expr:
    """erfinv(x) for |x| <= 0.75."""
    r = hl.f64(0.5625) - x * x
    return x * (polynomial(r, CENTER_P) / polynomial(r, CENTER_Q)) + x


def tail_ratio(s: hl.Expr) -> hl.Expr:
    """1 - erfinv(1 - exp(-s**2)) / s for 1.177 <= s <= 6.07."""
    u, v = s - hl.f64(1.177), s - hl.f64(2.999)
    near = polynomial(u, NEAR_P) / polynomial(u, NEAR_Q)
    far = polynomial(v, FAR_P) / polynomial(v, FAR_Q)
    return hl.select(s < hl.f64(3), near, far)
