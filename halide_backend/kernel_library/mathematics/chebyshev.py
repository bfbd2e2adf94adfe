"""The Chebyshev polynomials T, U, V, W, and those shifted to [0, 1], in binary64; binary32 results are those rounded.

The degree is cut to an integer; negative ones give 0. Up to degree 8 by the recurrence p[k] = 2 x p[k-1] - p[k-2]
(DLMF 18.9), beyond by cosines and sines of multiples of acos |x| (DLMF 18.5.1-4) or, for |x| > 1, exponentials of
multiples of acosh |x|, so that any degree takes the same time. P(-x) = (-1)**n P(x), where V and W change places.
"""

from __future__ import annotations

import math
from typing import Literal

import halide as hl

from halide_backend.kernel_library.mathematics.exponential import expm1
from halide_backend.kernel_library.mathematics.floating_point import (
    at_least,
    at_most,
    from_bits,
    head,
    in_binary64,
    sign_bits,
    to_bits,
    two_sum,
)
from halide_backend.kernel_library.mathematics.inverse_hyperbolic import acosh
from halide_backend.kernel_library.mathematics.inverse_trigonometric import acos
from halide_backend.kernel_library.mathematics.power import pow
from halide_backend.kernel_library.mathematics.trigonometric import sine_and_cosine

Kind = Literal["T", "U", "V", "W"]
#: The largest degree of the recurrence.
SMALL = 8
#: torch casts the degree to int64; what does not fit becomes the smallest integer, a negative degree.
DEGREE_END = 2.0**63
#: Its powers beyond SMALL overflow.
LARGEST = 1e40


@in_binary64
def chebyshev_polynomial_t(x: hl.Expr, n: hl.Expr) -> hl.Expr:
    return _chebyshev("T", x, hl.f64(0), n)


@in_binary64
def chebyshev_polynomial_u(x: hl.Expr, n: hl.Expr) -> hl.Expr:
    return _chebyshev("U", x, hl.f64(0), n)


@in_binary64
def chebyshev_polynomial_v(x: hl.Expr, n: hl.Expr) -> hl.Expr:
    return _chebyshev("V", x, hl.f64(0), n)


@in_binary64
def chebyshev_polynomial_w(x: hl.Expr, n: hl.Expr) -> hl.Expr:
    return _chebyshev("W", x, hl.f64(0), n)


@in_binary64
def shifted_chebyshev_polynomial_t(x: hl.Expr, n: hl.Expr) -> hl.Expr:
    return _chebyshev("T", *two_sum(x + x, hl.f64(-1)), n)


@in_binary64
def shifted_chebyshev_polynomial_u(x: hl.Expr, n: hl.Expr) -> hl.Expr:
    return _chebyshev("U", *two_sum(x + x, hl.f64(-1)), n)


@in_binary64
def shifted_chebyshev_polynomial_v(x: hl.Expr, n: hl.Expr) -> hl.Expr:
    return _chebyshev("V", *two_sum(x + x, hl.f64(-1)), n)


@in_binary64
def shifted_chebyshev_polynomial_w(x: hl.Expr, n: hl.Expr) -> hl.Expr:
    return _chebyshev("W", *two_sum(x + x, hl.f64(-1)), n)


def _chebyshev(kind: Kind, x: hl.Expr, low: hl.Expr, n: hl.Expr) -> hl.Expr:
    """The polynomial at x + low; low, below the last place of x, matters where it grows as x**n does."""
    degree = hl.trunc(n)
    value = hl.select(degree <= hl.f64(SMALL), _small_degree(kind, x, degree), _large_degree(kind, x, low, degree))
    return hl.select((degree >= hl.f64(0)) & (degree < hl.f64(DEGREE_END)), value, hl.f64(0))


def _small_degree(kind: Kind, x: hl.Expr, degree: hl.Expr) -> hl.Expr:
    twice = x + x
    before, now = hl.f64(1), {"T": x, "U": twice, "V": twice - 1, "W": twice + 1}[kind]
    value = hl.select(degree == hl.f64(0), before, now)
    for k in range(2, SMALL + 1):
        before, now = now, twice * now - before
        value = hl.select(degree == hl.f64(k), now, value)
    return value


def _large_degree(kind: Kind, x: hl.Expr, low: hl.Expr, degree: hl.Expr) -> hl.Expr:
    """cos((n + s) t) / cos(s t) for T (s = 0) and V (1/2), sin((n + s) t) / sin(s t) for U (1) and W (1/2).

    t = acos |x|. For |x| > 1 the same with cosh, sinh and acosh, freed of what overflows early; a sine's quotient has
    the limit (n + s) / s at 1.
    """
    a, a_low = hl.abs(x), from_bits(to_bits(low) ^ sign_bits(x))
    negative = x < hl.f64(0)
    shift = hl.f64({"T": 0.0, "U": 1.0, "V": 0.5, "W": 0.5}[kind])
    sines = (
        negative != hl.cast(hl.Bool(), hl.i32(kind == "W")) if kind in "VW" else hl.cast(hl.Bool(), hl.i32(kind == "U"))
    )
    multiple = degree + shift
    inside = a <= hl.f64(1)
    angle = acos(at_most(a, 1.0))
    sine, cosine = sine_and_cosine(multiple * angle)
    wave = hl.select(sines, sine, cosine) / _sine_or_cosine(kind, hl.select(sines, hl.f64(1) - a, a + 1), a)
    wave = hl.select(sines & (a == hl.f64(1)), multiple / at_least(shift, 0.5), wave)
    growing = acosh(at_least(a, 1.0))
    above, below = expm1(growing * multiple * -2), expm1(growing * shift * -2)
    one_over = hl.select(sines, above, above + 2) / hl.select(sines, below, below + 2)
    value = hl.select(inside, wave, _growth(at_least(a, 1.0), a_low, degree) * one_over)
    half = degree * hl.f64(0.5)
    return hl.select(negative & (hl.floor(half) != half), hl.f64(0) - value, value)


def _growth(a: hl.Expr, a_low: hl.Expr, degree: hl.Expr) -> hl.Expr:
    """exp(degree acosh(a + a_low)) = (a + sqrt(a**2 - 1))**degree of that, a >= 1, degree > SMALL.

    What the rounded base w lacks, and a_low adds to it, is put right by a factor 1 + degree low / w.
    """
    a = at_most(a, LARGEST)
    root = hl.sqrt((a - 1) * (a + 1))
    w = a + root
    a_head, root_head = head(a), head(root)
    missing = ((a_head * a_head - 1) - root_head * root_head) + (
        (a - a_head) * (a + a_head) - (root - root_head) * (root + root_head)
    )
    bend = missing * hl.f64(0.5) + a_low * w
    low = (root - (w - a)) + hl.select(root == hl.f64(0), hl.f64(0), bend / root)
    power = pow(w, degree)
    return hl.select(power < hl.f64(math.inf), power + power * (degree * low / w), power)


def _sine_or_cosine(kind: Kind, half_angle: hl.Expr, a: hl.Expr) -> hl.Expr:
    """sin(s t) or cos(s t) of `_large_degree`; half_angle: 1 - a or 1 + a."""
    if kind == "T":
        return hl.f64(1)
    return hl.sqrt((hl.f64(1) - a) * (a + 1) if kind == "U" else half_angle * hl.f64(0.5))
