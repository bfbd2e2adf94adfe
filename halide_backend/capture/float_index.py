"""Numbers that loop bodies compute from sizes in floating point, as in the gradient of a variance of n elements:
`2.0/(ToFloat(n) - 1.0)`.

torch's interpreter of sympy expressions turns them into operations in binary64, the type of Python's own numbers.
"""

from __future__ import annotations

import functools
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import FloatPow, FloatTrueDiv, IntTrueDiv, ToFloat, TruncToFloat
from torch.utils._sympy.interp import sympy_interp

from halide_backend.capture.recorded import BodyRecorder
from halide_backend.errors import Unsupported

_FLOATING = (sympy.Float, FloatPow, FloatTrueDiv, IntTrueDiv, ToFloat, TruncToFloat)


def is_float(index: sympy.Basic) -> bool:
    """Whether floating-point numbers take part in `index`, or it is a comparison, which is recorded as they are."""
    return not isinstance(index, sympy.Expr) or bool(index.atoms(*_FLOATING))


def record(index: sympy.Expr, recorder: BodyRecorder) -> Any:
    """The value of `index`, recorded by `recorder`.

    Raises:
        Unsupported: a function that torch cannot interpret.
    """
    try:
        return sympy_interp(
            _Binary64(recorder), {}, index, missing_handler=lambda symbol: recorder.index_expr(symbol, torch.int64)
        )
    except KeyError as function:
        raise Unsupported("index-function", f"{function} in {index}") from None


class _Binary64:
    """The recorder, with quotients of integers as Python has them, not as torch has those of tensors."""

    def __init__(self, recorder: BodyRecorder) -> None:
        self._recorder = recorder

    def int_truediv(self, a: Any, b: Any) -> Any:
        cast = self._recorder.cast
        return self._recorder.truediv(cast(a, torch.float64), cast(b, torch.float64))

    def sym_sum(self, terms: list[Any]) -> Any:
        return functools.reduce(self._recorder.add, terms)

    def pow_by_natural(self, base: Any, exponent: Any) -> Any:
        return self._recorder.pow(self._recorder.cast(base, torch.float64), exponent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._recorder, name)
