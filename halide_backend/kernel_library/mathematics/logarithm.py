"""log, log2, log10, log1p.

x = m 2**e with m in [0.6875, 1.375) (binary32) or [sqrt(1/2), sqrt(2)); log(1+f), f = m - 1, by a minimax polynomial
(binary32) or Sun's series in s = f/(2+f) (binary64, method of fdlibm's e_log.c); coefficients by
tests/kernel_library/mathematics/fits.py. Largest errors of binary32 over all arguments in [0.2, 5], with FMA and
without: log 0.59 and 0.66 ulps, log2 0.61 and 0.76, log10 0.59 and 0.69.
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.exponential import LN2_PARTS_64
from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    BINARY64,
    ROOT_HALF,
    float_format,
    head,
    power_of_two,
    split_exponent,
    split_positive,
    sum_in_two_parts,
    to_bits,
    two_sum,
)
from halide_backend.kernel_library.mathematics.polynomial import polynomial

LN2_PARTS_32 = (0.693359375, -2.1219444005469057e-04)
#: Where m begins. binary32: both ends of f leave the same rounding errors.
START = {BINARY32: 0.6875, BINARY64: ROOT_HALF}
# (log1p(f) - f + f**2/2) / f**3 on [-0.3126, 0.3751], error relative to log1p(f): 2**-29.5 as rounded.
LOG_32 = (
    0.08837580680847168,
    -0.12504757940769196,
    0.11499183624982834,
    -0.12256938964128494,
    0.14245077967643738,
    -0.1667628288269043,
    0.20001403987407684,
    -0.24999870359897614,
    0.33333319425582886,
)
# (log1p(t) - t) / t**2 on [0, 1], error relative to log1p(t): 2**-26.6 as rounded.
LOG1P_UNIT_32 = (
    -0.003319762647151947,
    0.020210683345794678,
    -0.05767643451690674,
    0.10681819915771484,
    -0.15356166660785675,
    0.19695672392845154,
    -0.24958640336990356,
    0.33330515027046204,
    -0.4999993145465851,
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
# ln2: a head of 26 bits and the rest.
LN2 = (0.6931471675634384, 1.2996506893889889e-08)
# log2(e) and log10(e) (heads of 12 bits) and log10(2) (15 and 26 bits), each with its rest.
LOG2_E_PARTS_32 = (1.4423828125, 0.000312228388963387)
LOG10_E_PARTS_32 = (0.4342041015625, 9.038034075182765e-05)
LOG10_2_PARTS_32 = (0.301025390625, 4.605038981195214e-06)
LOG10_2_PARTS_64 = (0.3010299950838089, 5.801722962879576e-10)


def log_correction(f: hl.Expr) -> hl.Expr:
    """log(1 + f) - f for f in [sqrt(1/2) - 1, sqrt(2) - 1]; binary64."""
    return _bend_64(f) - f * f * hl.f64(0.5)


def logarithm_domain(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """y, the logarithm of x, where x is positive and finite; else -inf (0), inf (inf), NaN (negative, NaN)."""
    f = float_format(x)
    y = hl.select(x == f.value(0), f.value(-math.inf), hl.select(x < f.value(math.inf), y, x))
    return hl.select(x < f.value(0), f.value(math.nan), y)


def log(x: hl.Expr) -> hl.Expr:
    f = float_format(x)
    m, e = split_positive(x, START[f])
    return logarithm_domain(x, _times_ln2_plus(e, m - f.value(1)))


def log_of_sum(high: hl.Expr, low: hl.Expr, exponent: int) -> hl.Expr:
    """log((high + low) 2**exponent), high normal and low below its last place."""
    f = float_format(high)
    m, e = split_exponent(high, START[f])
    y = _times_ln2_plus(e + f.value(exponent), m - f.value(1), low / high)
    return logarithm_domain(high, y)


def _times_ln2_plus(e: hl.Expr, f: hl.Expr, small: hl.Expr | None = None) -> hl.Expr:
    """e ln2 + log(1 + f) + small.

    The first sum has f - f**2/2; what rounding took from it, f - its part of the sum - f**2/2, is one FMA.
    """
    fmt = float_format(f)
    high, low = (fmt.value(c) for c in (LN2_PARTS_32 if fmt is BINARY32 else LN2_PARTS_64))
    square, turns, half = f * f, e * high, fmt.value(0.5)
    total = turns + (f - square * half)
    missing = (f - (total - turns)) - f * half * f
    bend = square * f * polynomial(f, LOG_32) if fmt is BINARY32 else _bend_64(f)
    return total + (missing + (bend + (e * low if small is None else e * low + small)))


def _bend_64(f: hl.Expr) -> hl.Expr:
    """log(1 + f) - f + f**2/2 for f in [sqrt(1/2) - 1, sqrt(2) - 1]."""
    s = f / (f + 2)
    z = s * s
    return s * (f * f * hl.f64(0.5) + z * polynomial(z, LOG_64))


def _scaled_32(f: hl.Expr, parts: tuple[float, float], start: hl.Expr, rest: hl.Expr) -> hl.Expr:
    """start + rest + (c + d) log(1 + f), f in [-0.3125, 0.375]; binary32. parts: a head c and d, rest far below start.

    f - f**2/2 is taken in two parts, f**3 apart from the higher powers.
    """
    c, d, both = hl.f32(parts[0]), hl.f32(parts[1]), hl.f32(sum(parts))
    square = f * f
    high = head(f - square * hl.f32(0.5))
    low = (f - high) - f * hl.f32(0.5) * f
    total, missing = sum_in_two_parts(start, high * c)
    rest = missing + (high * d + (low * both + rest))
    rest = square * square * polynomial(f, LOG_32[:-1]) * both + rest
    return total + (square * f * hl.f32(LOG_32[-1] * sum(parts)) + rest)


def log1p(x: hl.Expr) -> hl.Expr:
    """log(1+x) = e ln2 + log(1+f), f = (1+x) 2**-e - 1 from x itself; f = x where e = 0."""
    f = float_format(x)
    _, e = split_exponent(x + 1, START[f])
    scale = _quarter_scale(e)
    quarter = f.value(0.25)
    g, lost = two_sum((x * quarter) * scale, scale * quarter - 1)
    rest = lost * (f.value(1) - g)  # lost / (1 + g), to a tenth of it
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
    m, e = split_positive(x, START[f])
    if f is BINARY32:
        y = _scaled_32(m - 1, LOG2_E_PARTS_32, e, hl.f32(0))
    else:
        high, low = log2_in_two_parts(m, e)
        y = high + low
    return logarithm_domain(x, y)


def log10(x: hl.Expr) -> hl.Expr:
    f = float_format(x)
    m, e = split_positive(x, START[f])
    if f is BINARY32:
        d_high, d_low = (f.value(d) for d in LOG10_2_PARTS_32)
        y = _scaled_32(m - 1, LOG10_E_PARTS_32, e * d_high, e * d_low)
    else:
        high, low = log2_in_two_parts(m, e)
        c_high, c_low = LOG10_2_PARTS_64
        y = high * f.value(c_high) + (low * f.value(c_high + c_low) + high * f.value(c_low))
    return logarithm_domain(x, y)


def log_in_two_parts(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """log(x) = high + low to 2**-68 of it, x positive and in binary64."""
    (log_high, log_low), (ln2_high, ln2_low) = log2_in_two_parts(*split_positive(x)), (hl.f64(c) for c in LN2)
    return log_high * ln2_high, log_high * ln2_low + log_low * hl.f64(math.log(2))


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
