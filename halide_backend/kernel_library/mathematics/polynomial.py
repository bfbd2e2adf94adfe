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


def polynomial_by_pairs(x: hl.Expr, coefficients: Sequence[float]) -> hl.Expr:
    """The same with Horner's rule in x**2 for pairs of coefficients: as many operations, half of them wait for another.

    To be preferred where many vectors wait for such a polynomial at a time, and few fit into the processor's window.
    """
    f = float_format(x)
    square = x * x
    pairs = [x * f.value(high) + f.value(low) for high, low in zip(coefficients[::2], coefficients[1::2])]
    result = pairs[0]
    for pair in pairs[1:]:
        result = result * square + pair
    return result * x + f.value(coefficients[-1]) if len(coefficients) % 2 else result
