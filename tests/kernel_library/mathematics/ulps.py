"""Errors in units of the last place."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import numpy.typing as npt

#: What stands for a NaN, an infinity or the sign of a zero that is wrong.
WRONG = 1e30


def errors_in_ulps(
    values: npt.NDArray[np.floating], truth: npt.NDArray[np.floating], floor: float = 0.0
) -> npt.NDArray[np.float64]:
    """Errors of values, beside a truth in a wider format, in ulps of its size or of `floor` where that is larger.

    An infinity counts as the power of two behind the largest number: whether a result next to that overflows is a
    question of ulps too.
    """
    narrow, wide = values.dtype.type, truth.dtype.type
    limits = np.finfo(narrow)
    with np.errstate(all="ignore"):
        rounded = truth.astype(narrow)
        unit = np.spacing(np.maximum(np.abs(rounded), narrow(floor))).astype(wide)
        unit = np.where(np.isfinite(unit), unit, np.ldexp(wide(1), limits.maxexp - limits.nmant - 1))
        limit = np.ldexp(wide(1), limits.maxexp)
        error = (np.abs(values.astype(wide).clip(-limit, limit) - truth.clip(-limit, limit)) / unit).astype(np.float64)
    zero = (rounded == 0) & (values == 0)
    error[np.isnan(values) & np.isnan(truth)] = 0
    error[np.isnan(values) != np.isnan(truth)] = WRONG
    error[zero & (np.signbit(values) != np.signbit(rounded))] = WRONG
    error[np.isinf(truth) & (values != truth)] = WRONG
    return error


def ulp_64(value: float, truth: mp.mpf, floor: float = 0.0) -> float:
    """The same for one float64 value; signs of zero are not looked at (mpmath has none)."""
    if mp.isnan(truth) or np.isnan(value):
        return 0.0 if mp.isnan(truth) and np.isnan(value) else WRONG
    limit = mp.mpf(2) ** 1024
    if mp.isinf(truth):
        return 0.0 if value == float(truth) else WRONG
    clipped = max(min(truth, limit), -limit)
    seen = mp.mpf(float(value)) if np.isfinite(value) else limit * (1 if value > 0 else -1)
    size = min(max(abs(float(clipped)), floor), 2.0**1023)  # one unit up to the largest number
    unit = float(np.spacing(size))
    return float(abs(seen - clipped) / mp.mpf(unit))
