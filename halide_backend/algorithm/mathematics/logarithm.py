"""log, log2, log10, log1p.

x = m 2**e with m in [sqrt(1/2), sqrt(2)); log(1+f), f = m - 1, by a minimax polynomial (binary32) or Sun's series in
s = f/(2+f) (binary64, method of fdlibm's e_log.c); coefficients by tests/algorithm/mathematics/fits.py.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.algorithm.mathematics.exponential import LN2_PARTS_64, LOG2_E
from halide_backend.algorithm.mathematics.floating_point import (
    BINARY32,
    float_format,
    head,
    power_of_two,
    split_exponent,
    to_bits,
)
from halide_backend.algorithm.mathematics.polynomial import polynomial

LN2_PARTS_32 = (0.693359375, -2.1219444005469057e-04)
# (log1p(f) - f + f**2/2) / f**3 on [sqrt(1/2) - 1, sqrt(2) - 1], error relative to log1p(f): 2**-30.3.
LOG_32 = (
    0.06746973998965286,
    -0.11675619052652166,
    0.11887977737695776,
    -0.12405581593575761,
    0.14219578788615334,
    -0.1666799728362445,
    0.2000211731098082,
    -0.25000009548625135,
    0.3333331262338637,
)
# (2 atanh(s) - 2 s) / s**3 in z = s**2 <= 0.02946, error relative to 2 s: 2**-58.5.
LOG_64 = (
    0.14797432826636175,
    0.15313910290929975,
    0.1818356948502515,
    0.2222219848041578,
    0.28571428743225114,
    0.3999999999941123,
    0.6666666666666735,
)
# (3 atanh(s) - 3 s - s**3) / s**5 in z = s**2 <= 0.02946: 2**-73 of the sum.
ATANH_TAIL = (
    0.1798558636224582,
    0.17511980560867368,
    0.20004488256140152,
    0.23076834992679804,
    0.27272728310049466,
    0.3333333332626759,
    0.4285714285716782,
    0.5999999999999996,
)
# 2 / (3 ln2): a head of 26 bits and the rest.
TWO_THIRDS_LOG2_E = (0.9617966860532761, 7.872699542894897e-09)
# log10(e) (head of 12 bits) and log10(2) (15 and 26 bits), each with its rest.
LOG10_E_PARTS_32 = (0.4342041015625, 9.038034075182765e-05)
LOG10_2_PARTS_32 = (0.301025390625, 4.605038981195214e-06)
LOG10_2_PARTS_64 = (0.3010299950838089, 5.801722962879576e-10)


def log_correction(f: hl.Expr) -> hl.Expr:
    """log(1 + f) - f for f in [sqrt(1/2) - 1, sqrt(2) - 1]."""
    half_square = f * f * float_format(f).value(0.5)
    if float_format(f) is BINARY32:
        return f * f * f * polynomial(f, LOG_32) - half_square
    s = f / (f + 2)
    z = s * s
    return s * (half_square + z * polynomial(z, LOG_64)) - half_square


def positive_normal(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(x scaled into the normal range, exponent to add to its own), x positive."""
    f = float_format(x)
    tiny = x < f.value(f.smallest_normal)
    scale = f.mantissa + 1
    return (
        hl.select(tiny, x * f.value(2.0**scale), x),
        hl.select(tiny, f.value(-scale), f.value(0)),
    )


def logarithm_domain(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """y, the logarithm of x, where x is positive and finite; else -inf (0), inf (inf), NaN (negative, NaN)."""
    f = float_format(x)
    edge = hl.select(x == f.value(0), f.value(-math.inf), hl.select(x > f.value(0), x, f.value(math.nan)))
    return hl.select((x > f.value(0)) & (x < f.value(math.inf)), y, edge)


def log(x: hl.Expr) -> hl.Expr:
    f = float_format(x)
    normal, extra = positive_normal(x)
    m, e = split_exponent(normal)
    return logarithm_domain(x, _times_ln2_plus(e + extra, m - f.value(1)))


def log_of_sum(high: hl.Expr, low: hl.Expr, exponent: int) -> hl.Expr:
    """log((high + low) 2**exponent), high normal and low below its last place."""
    f = float_format(high)
    m, e = split_exponent(high)
    y = _times_ln2_plus(e + f.value(exponent), m - f.value(1), low / high)
    return logarithm_domain(high, y)


def _times_ln2_plus(e: hl.Expr, f: hl.Expr, small: hl.Expr | None = None) -> hl.Expr:
    """e ln2 + log(1 + f) + small."""
    fmt = float_format(f)
    high, low = LN2_PARTS_32 if fmt is BINARY32 else LN2_PARTS_64
    rest = e * fmt.value(low)
    total, missing = _sum(e * fmt.value(high), f)
    return total + (missing + (log_correction(f) + (rest if small is None else rest + small)))


def _sum(large: hl.Expr, small: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(sum, rounding error of it) where large is 0 or above small in size (Dekker's fast two-sum)."""
    total = large + small
    return total, small - (total - large)


def log1p(x: hl.Expr) -> hl.Expr:
    """log(1+x) = e ln2 + log(1+f), f = (1+x) 2**-e - 1 from x itself; f = x where e = 0."""
    f = float_format(x)
    _, e = split_exponent(x + 1)
    scale = _quarter_scale(e)
    quarter = f.value(0.25)
    scaled, shift = (x * quarter) * scale, scale * quarter - 1
    g = scaled + shift
    # The rounding error of g (Knuth's two-sum: either part may be the larger) over 1 + g, to a tenth of it.
    part = g - scaled
    rest = ((scaled - (g - part)) + (shift - part)) * (f.value(1) - g)
    start = e == f.value(0)
    y = _times_ln2_plus(e, hl.select(start, x, g), hl.select(start, f.value(0), rest))
    y = hl.select(hl.abs(x) < f.value(2.0 ** -(f.mantissa + 2)), x, y)
    edge = hl.select(x == f.value(-1), f.value(-math.inf), hl.select(x > f.value(-1), x, f.value(math.nan)))
    return hl.select((x > f.value(-1)) & (x < f.value(math.inf)), y, edge)


def _quarter_scale(e: hl.Expr) -> hl.Expr:
    """4 * 2**-e, e an integer in a float: a normal number even for the largest e."""
    f = float_format(e)
    return power_of_two(to_bits(f.value(f.integer_offset + 2) - e) - to_bits(f.value(f.integer_offset)))


def log2(x: hl.Expr) -> hl.Expr:
    f = float_format(x)
    normal, extra = positive_normal(x)
    m, e = split_exponent(normal)
    e = e + extra
    if f is BINARY32:
        g = m - 1
        # log2(1 + g) = g + (log2(e) - 1) g + log2(e) (log(1 + g) - g)
        total, missing = _sum(e, g)
        y = total + (missing + (g * f.value(LOG2_E - 1) + log_correction(g) * f.value(LOG2_E)))
    else:
        high, low = log2_in_two_parts(m, e)
        y = high + low
    return logarithm_domain(x, y)


def log10(x: hl.Expr) -> hl.Expr:
    f = float_format(x)
    normal, extra = positive_normal(x)
    m, e = split_exponent(normal)
    e = e + extra
    if f is BINARY32:
        g = m - 1
        (c_high, c_low), (d_high, d_low) = LOG10_E_PARTS_32, LOG10_2_PARTS_32
        fine = g * f.value(c_low) + log_correction(g) * f.value(c_high + c_low)
        y = (g * f.value(c_high) + (fine + e * f.value(d_low))) + e * f.value(d_high)
    else:
        high, low = log2_in_two_parts(m, e)
        c_high, c_low = LOG10_2_PARTS_64
        y = high * f.value(c_high) + (low * f.value(c_high + c_low) + high * f.value(c_low))
    return logarithm_domain(x, y)


def log2_in_two_parts(m: hl.Expr, e: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """e + log2(m) = high + low to 2**-68 of it, high a head, m in [sqrt(1/2), sqrt(2)); binary64.

    log2(m) = 2 / (3 ln2) * s (3 + s**2 + r), s = (m-1)/(m+1), after fdlibm's e_pow.c.
    """
    u, d = m - 1, m + 1
    v = hl.f64(1) / d
    s = u * v
    s_high, d_high = head(s), head(d)
    d_low = m - (d_high - 1)
    s_low = v * ((u - s_high * d_high) - s_high * d_low)
    z = s * s
    r = z * z * polynomial(z, ATANH_TAIL) + s_low * (s_high + s)
    square = s_high * s_high
    t_high = head(square + 3 + r)
    t_low = r - ((t_high - 3) - square)
    u, v = s_high * t_high, s_low * t_high + t_low * s
    p_high = head(u + v)
    p_low = v - (p_high - u)
    c_high, c_low = (hl.f64(c) for c in TWO_THIRDS_LOG2_E)
    z_high, z_low = c_high * p_high, c_low * p_high + p_low * (c_high + c_low)
    high = head((z_high + z_low) + e)
    return high, z_low - ((high - e) - z_high)
