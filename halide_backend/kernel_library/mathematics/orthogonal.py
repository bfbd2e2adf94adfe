"""The Hermite, Laguerre and Legendre polynomials by their recurrences (DLMF 18.9) in binary64.

The degree is data, so the recurrence is a loop to the largest degree with a predicate. In scalar code Halide ends that
loop where the predicate does; in a vector, where the lanes have ends of their own, it would run to the last step. So
these functions belong into a Func that is not vectorized. binary32 results are those of binary64, rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import BINARY32, float_format

#: (the polynomial of degree k + 1) of x, k and those of degrees k and k - 1.
Step = Callable[[hl.Expr, hl.Expr, hl.Expr, hl.Expr], hl.Expr]
#: The degrees of the Hermite polynomials beyond which torch has NaN.
HERMITE_LIMIT_32, HERMITE_LIMIT_64 = 128, 512
#: Steps of the longest loop, 2**31 - 3 of them; a polynomial of a higher degree is NaN.
_LONGEST = 2**31 - 3


def hermite_polynomial_h(x: hl.Expr, degree: hl.Expr, axes: Sequence[hl.Var]) -> hl.Expr:
    return _hermite(x, degree, axes, 2)


def hermite_polynomial_he(x: hl.Expr, degree: hl.Expr, axes: Sequence[hl.Var]) -> hl.Expr:
    return _hermite(x, degree, axes, 1)


def laguerre_polynomial_l(x: hl.Expr, degree: hl.Expr, axes: Sequence[hl.Var]) -> hl.Expr:
    def step(x: hl.Expr, k: hl.Expr, now: hl.Expr, before: hl.Expr) -> hl.Expr:
        return ((k + k + (hl.f64(1) - x)) * now - k * before) / (k + 1)

    return _recurrence(x, degree, axes, hl.f64(1) - hl.cast(hl.Float(64), x), step, _LONGEST)


def legendre_polynomial_p(x: hl.Expr, degree: hl.Expr, axes: Sequence[hl.Var]) -> hl.Expr:
    def step(x: hl.Expr, k: hl.Expr, now: hl.Expr, before: hl.Expr) -> hl.Expr:
        return ((k + k + 1) * x * now - k * before) / (k + 1)

    return _recurrence(x, degree, axes, hl.cast(hl.Float(64), x), step, _LONGEST)


def _hermite(x: hl.Expr, degree: hl.Expr, axes: Sequence[hl.Var], scale: int) -> hl.Expr:
    """H (scale 2) or He (scale 1)."""

    def step(x: hl.Expr, k: hl.Expr, now: hl.Expr, before: hl.Expr) -> hl.Expr:
        return x * scale * now - k * scale * before

    limit = HERMITE_LIMIT_32 if float_format(x) is BINARY32 else HERMITE_LIMIT_64
    return _recurrence(x, degree, axes, hl.cast(hl.Float(64), x) * scale, step, limit)


def _recurrence(x: hl.Expr, degree: hl.Expr, axes: Sequence[hl.Var], first: hl.Expr, step: Step, limit: int) -> hl.Expr:
    """The polynomial of `degree`, a number of the type of `x`; `first` is the one of degree 1.

    As in torch, which truncates the degree to int64: 0 for a negative one and for one that is no int64, NaN included.
    Beyond `limit` it is NaN.
    """
    f = float_format(x)
    wide, number = hl.cast(hl.Float(64), x), hl.cast(hl.Float(64), degree)
    within = (number > 0) & (number < hl.f64(limit + 1))
    steps = hl.cast(hl.Int(32), hl.select(within, number, hl.f64(0)))
    place = list(axes) if axes else ()
    pair = hl.Func("polynomials")
    pair[place] = (hl.f64(1), first)
    k = hl.RDom([(1, _LONGEST)], "degree")
    k.where(k.x < steps)
    before, now = pair[place][0], pair[place][1]
    pair[place] = (hl.Expr(now), step(wide, hl.cast(hl.Float(64), k.x), hl.Expr(now), hl.Expr(before)))
    found = hl.select(steps == 0, hl.f64(1), hl.Expr(pair[place][1]))
    found = hl.select(number < hl.f64(limit + 1), found, hl.f64(math.nan))
    natural = (number > -1) & (number < hl.f64(2.0**63))
    return hl.cast(f.float_type, hl.select(natural, found, hl.f64(0)))
