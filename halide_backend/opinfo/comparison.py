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

    def difference(
        self, actual: Any, expected: Any, tolerance: Tolerance, *, exact: bool = True
    ) -> str:
        """What differs, or "" where nothing does; `exact` asks for equal data types, too."""
        if not tolerance.values:
            return _structure(actual, expected)
        try:
            self._case.assertEqual(
                actual,
                expected,
                rtol=tolerance.relative,
                atol=tolerance.absolute,
                equal_nan=True,
                exact_dtype=exact,
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
            if getattr(ours, name, None) != getattr(theirs, name):
                return f"result {position}: {name} {getattr(ours, name, None)}, expected {getattr(theirs, name)}"
    return ""
