"""The Hermite, Laguerre and Legendre polynomials of a known degree, by their recurrences (DLMF 18.9) in binary64.

A recurrence is a loop over an update definition, whose Func needs the variables that the argument depends on. Halide
computes it where it is used, vector by vector. binary32 results are those of binary64, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import halide as hl

from halide_backend.algorithm.mathematics.floating_point import BINARY32, float_format

#: (the polynomial of degree k + 1) of x, k and those of degrees k and k - 1.
Step = Callable[[hl.Expr, hl.Expr, hl.Expr, hl.Expr], hl.Expr]
#: The degrees of the Hermite polynomials beyond which torch has NaN.
HERMITE_LIMIT_32, HERMITE_LIMIT_64 = 128, 512


def hermite_polynomial_h(x: hl.Expr, degree: int, axes: Sequence[hl.Var]) -> hl.Expr:
    return _hermite(x, degree, axes, 2)


def hermite_polynomial_he(x: hl.Expr, degree: int, axes: Sequence[hl.Var]) -> hl.Expr:
    return _hermite(x, degree, axes, 1)


def laguerre_polynomial_l(x: hl.Expr, degree: int, axes: Sequence[hl.Var]) -> hl.Expr:
    def step(x: hl.Expr, k: hl.Expr, now: hl.Expr, before: hl.Expr) -> hl.Expr:
        return ((k + k + (hl.f64(1) - x)) * now - k * before) / (k + 1)

    return _recurrence(x, degree, axes, hl.f64(1) - hl.cast(hl.Float(64), x), step)


def legendre_polynomial_p(x: hl.Expr, degree: int, axes: Sequence[hl.Var]) -> hl.Expr:
    def step(x: hl.Expr, k: hl.Expr, now: hl.Expr, before: hl.Expr) -> hl.Expr:
        return ((k + k + 1) * x * now - k * before) / (k + 1)

    return _recurrence(x, degree, axes, hl.cast(hl.Float(64), x), step)


def _hermite(x: hl.Expr, degree: int, axes: Sequence[hl.Var], scale: int) -> hl.Expr:
    """H (scale 2) or He (scale 1)."""

    def step(x: hl.Expr, k: hl.Expr, now: hl.Expr, before: hl.Expr) -> hl.Expr:
        return x * scale * now - k * scale * before

    f = float_format(x)
    if degree > (HERMITE_LIMIT_32 if f is BINARY32 else HERMITE_LIMIT_64):
        return f.value(math.nan)
    return _recurrence(x, degree, axes, hl.cast(hl.Float(64), x) * scale, step)


def _recurrence(x: hl.Expr, degree: int, axes: Sequence[hl.Var], first: hl.Expr, step: Step) -> hl.Expr:
    """The polynomial of this degree, 0 if that is negative; `first` is the one of degree 1."""
    f = float_format(x)
    if degree < 1:
        return f.value(1.0 if degree == 0 else 0.0)
    if degree == 1:
        return hl.cast(f.float_type, first)
    wide = hl.cast(hl.Float(64), x)
    place = list(axes) if axes else ()
    pair = hl.Func("polynomials")
    pair[place] = (hl.f64(1), first)
    k = hl.RDom([(1, degree - 1)], "degree")
    before, now = pair[place][0], pair[place][1]
    pair[place] = (hl.Expr(now), step(wide, hl.cast(hl.Float(64), k.x), hl.Expr(now), hl.Expr(before)))
    return hl.cast(f.float_type, hl.Expr(pair[place][1]))
