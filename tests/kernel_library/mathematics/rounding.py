"""Coefficients of a polynomial in binary32, chosen so that rounding them costs little of the approximation's error."""

from __future__ import annotations

import itertools

import mpmath as mp
import numpy as np
from fit import Fit
from minimax import minimax

#: Where a quotient by a power of x is too large to be fitted again.
_NEAR_ZERO = 0.02
_POINTS = 120


def rounded(fit: Fit, fixed: int) -> tuple[list[float], float]:
    """(coefficients from the highest power down, largest error).

    The `fixed` lowest coefficients are rounded, up or down, before the others are solved, which then are rounded so.
    """
    nodes = [mp.mpf(fit.lo) + (mp.mpf(fit.hi) - fit.lo) * (1 - mp.cos(mp.pi * i / _POINTS)) / 2 for i in range(_POINTS)]
    x, weight, truth = (
        np.array([np.longdouble(mp.nstr(v, 30)) for v in values])
        for values in (nodes, map(fit.weight, nodes), map(fit.function, nodes))
    )

    def error(coefficients: tuple[float, ...]) -> float:
        value = np.zeros_like(x)
        for c in coefficients:
            value = value * x + np.longdouble(c)
        return float(np.abs(weight * (value - truth)).max())

    candidates: list[tuple[float, ...]] = []
    starts: list[list[float]] = [[]]
    for k in range(fixed + 1):
        solved = [(start, _rest(fit, start)) for start in starts]
        if k == fixed:
            for start, rest in solved:
                candidates += itertools.product(*map(_neighbours, rest), *([c] for c in reversed(start)))
        starts = [[*start, c] for start, rest in solved for c in _neighbours(rest[-1])]
    best = min(candidates, key=error)
    return list(best), error(best)


def _rest(fit: Fit, start: list[float]) -> list[float]:
    """The coefficients above those of `start`, which go from the lowest power up."""
    k = len(start)

    def function(x: mp.mpf) -> mp.mpf:
        return (fit.function(x) - mp.polyval(start[::-1], x)) / x**k if k else fit.function(x)

    lo = max(fit.lo, _NEAR_ZERO) if k and fit.lo >= 0 else fit.lo
    return minimax(function, lo, fit.hi, fit.p - k, 0, lambda x: fit.weight(x) * x**k)[0]


def _neighbours(c: float) -> tuple[float, float]:
    nearest = np.float32(c)
    return float(nearest), float(np.nextafter(nearest, np.float32(np.inf if c > nearest else -np.inf)))
