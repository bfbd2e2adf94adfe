"""Compares results and gradients of a compiled call with those of eager."""

from __future__ import annotations

from typing import Any

import torch
from torch.testing._internal.common_utils import TestCase

from halide_backend.opinfo.tolerances import Tolerance

#: Longest message that is kept of one failure.
_LINES = 8


class Comparison:
    """torch's own `assertEqual`, with the least tolerances that the database asks for."""

    def __init__(self, least: tuple[float, float]) -> None:
        self._case = TestCase()
        self._case.rel_tol, self._case.precision = least

    def difference(self, actual: Any, expected: Any, tolerance: Tolerance) -> str:
        """What differs, data types included, or "" where nothing does."""
        if not tolerance.values:
            return _structure(actual, expected)
        try:
            self._case.assertEqual(
                actual,
                expected,
                rtol=tolerance.relative,
                atol=tolerance.absolute,
                equal_nan=True,
                exact_dtype=True,
            )
        except AssertionError as error:
            return "\n".join([line for line in str(error).splitlines() if line.strip()][:_LINES])
        return ""


def as_near(actual: Any, eager: Any, truth: Any) -> bool:
    """Whether each result is about as near to `truth`, which has a wider type, as eager's is.

    Its largest error is at most twice eager's: two right ways to round differ by that much where a sample enlarges
    rounding errors.
    What is no tensor of floating-point or complex numbers has to be equal to eager's.
    """
    for ours, theirs, right in zip(actual, eager, truth, strict=True):
        tensors = isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)
        if not tensors or not (theirs.is_floating_point() or theirs.is_complex()):
            if not (torch.equal(ours, theirs) if tensors else ours == theirs):
                return False
            continue
        finite = theirs.isfinite()
        if ours.dtype != theirs.dtype or not torch.equal(ours.isfinite(), finite):
            return False
        errors = [(values[finite] - right[finite]).abs() for values in (ours, theirs)]
        if bool(finite.any()) and not errors[0].max() <= 2 * errors[1].max():
            return False
    return True


def _structure(actual: Any, expected: Any) -> str:
    """What differs besides values."""
    for position, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if not isinstance(theirs, torch.Tensor):
            continue
        for name in ("dtype", "shape", "layout", "device"):
            found, wanted = getattr(ours, name, None), getattr(theirs, name)
            if found != wanted:
                return f"result {position}: {name} {found}, expected {wanted}"
    return ""
