"""One approximation problem."""

from __future__ import annotations

from dataclasses import dataclass

import mpmath as mp
from minimax import Function


@dataclass(frozen=True)
class Fit:
    """P/Q (or P, q = 0) of degrees p and q to `function` on [lo, hi] under `weight`; error: log2 of the largest.

    fixed: how many coefficients are rounded to binary32 before the others are solved (rounding.py); None: all after.
    """

    module: str
    numerator: str
    function: Function
    lo: float
    hi: float
    p: int
    q: int
    error: float
    weight: Function = lambda x: mp.mpf(1)
    denominator: str = ""
    fixed: int | None = None


def relative(f: Function) -> Function:
    return lambda x: 1 / f(x)
