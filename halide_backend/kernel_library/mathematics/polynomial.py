"""Polynomials with constant coefficients.

The errors quoted beside coefficients are before their rounding to the format; those after it stand in
tests/kernel_library/mathematics/fits.py, which also solves every approximation anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import float_format


def polynomial(x: hl.Expr, coefficients: Sequence[float]) -> hl.Expr:
    """Horner's rule; coefficients from the highest power down, rounded to x's format."""
    f = float_format(x)
    result = f.value(coefficients[0])
    for c in coefficients[1:]:
        result = result * x + f.value(c)
    return result
