"""The Hurwitz zeta function, in binary64; binary32 results are those rounded.

Terms of the series, then Euler and Maclaurin's formula (DLMF 25.11.5 with Bernoulli numbers up to B24).
"""

from __future__ import annotations

import math
from fractions import Fraction

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import at_most, in_binary64
from halide_backend.kernel_library.mathematics.power import pow

#: Terms that are summed one by one.
TERMS = 9
#: Beyond it only the largest term of the series is not 0, so the remainder may take this exponent for it.
LARGEST_EXPONENT = 2000.0


def _bernoulli_over_factorial(count: int) -> tuple[float, ...]:
    """B_2j / (2j)! for j = 1 to count, by sum of binomial(n + 1, k) B_k = 0."""
    numbers = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        numbers.append(-sum((math.comb(n + 1, k) * numbers[k] for k in range(n)), Fraction(0)) / (n + 1))
    return tuple(float(numbers[2 * j] / math.factorial(2 * j)) for j in range(1, count + 1))


MACLAURIN = _bernoulli_over_factorial(12)


@in_binary64
def zeta(s: hl.Expr, q: hl.Expr) -> hl.Expr:
    """The sum of (q + k)**-s over k >= 0: inf at s = 1 and at the poles, NaN below s = 1.

    Negative q (whole s only) by the sum over all integers k: with d the distance to the nearest integer it is
    d**-s + zeta(s, 1 + d) + (-1)**s zeta(s, 1 - d), and (-1)**s zeta(s, 1 - q) of it belong to k < 0.
    """
    negative = q < hl.f64(0)
    d = q - hl.round(q)
    near = hl.select(negative, d, q)
    half = s * hl.f64(0.5)
    sign = hl.select(hl.floor(half) == half, hl.f64(1), hl.f64(-1))
    value = _remainder(s, near, d, q, hl.select(negative, sign, hl.f64(0))) + pow(near, hl.f64(0) - s)
    whole = hl.floor(q) == q
    value = hl.select(negative & (hl.floor(s) != s), hl.f64(math.nan), value)
    value = hl.select((q <= hl.f64(0)) & whole, hl.f64(math.inf), value)
    return hl.select(s == hl.f64(1), hl.f64(math.inf), hl.select(s < hl.f64(1), hl.f64(math.nan), value))


def _remainder(s: hl.Expr, near: hl.Expr, d: hl.Expr, q: hl.Expr, sign: hl.Expr) -> hl.Expr:
    """zeta(s, near + 1) + sign (zeta(s, 1 - d) - zeta(s, 1 - q)); all second arguments are at least 1/2.

    One sum over three functions and their terms, so that the power is written once: it is most of the kernel.
    """
    bounded = at_most(s, LARGEST_EXPONENT)
    r = hl.RDom([(0, TERMS + 1), (0, 3)], "zeta_terms")
    # The smallest terms first.
    step, which = hl.cast(hl.Float(64), TERMS + 1 - r.x), r.y
    start = hl.select(which == 0, near, which == 1, hl.f64(0) - d, hl.f64(0) - q)
    base = start + step
    whole = base - start
    # (base + rest)**-s = base**-s (1 - s rest / base)
    rest = (start - (base - whole)) + (step - whole)
    weight = hl.select(which == 0, hl.f64(1), which == 1, sign, hl.f64(0) - sign)
    factor = hl.select(r.x > 0, hl.f64(1), _maclaurin(bounded, base))
    power = pow(base, hl.f64(0) - bounded)
    term = weight * factor * (power - power * (bounded * rest / base))
    return hl.sum(r, hl.select(weight == hl.f64(0), hl.f64(0), term), "zeta_sum")


def _maclaurin(s: hl.Expr, w: hl.Expr) -> hl.Expr:
    """zeta(s, w) w**s."""
    u = hl.f64(1) / w
    # s (s + 1) ... (s + 2j - 2) / w**(2j - 1), term by term
    factor = s * u
    rest = hl.f64(0.5)
    for j, coefficient in enumerate(MACLAURIN):
        rest = rest + factor * hl.f64(coefficient)
        factor = factor * ((s + hl.f64(2 * j + 1)) * u) * ((s + hl.f64(2 * j + 2)) * u)
    return rest + w / (s - 1)
