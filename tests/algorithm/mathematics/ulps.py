"""Errors in units of the last place."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import numpy.typing as npt

#: What stands for a NaN, an infinity or the sign of a zero that is wrong.
WRONG = 1e30


def ulps_32(
    values: npt.NDArray[np.float32], truth: npt.NDArray[np.float64], floor: float = 0.0
) -> npt.NDArray[np.float64]:
    """Errors of float32 values in ulps of the truth's size, or of `floor` where that is larger.

    An infinity counts as 2**128: whether a result next to the largest number overflows is a question of ulps too.
    """
    with np.errstate(all="ignore"):
        rounded = truth.astype(np.float32)
        unit = np.spacing(np.maximum(np.abs(rounded), np.float32(floor))).astype(np.float64)
        unit = np.where(np.isfinite(unit), unit, 2.0**104)
        limit = 2.0**128
        error = np.abs(values.astype(np.float64).clip(-limit, limit) - truth.clip(-limit, limit)) / unit
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
