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
