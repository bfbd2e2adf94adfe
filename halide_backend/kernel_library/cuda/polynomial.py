"""Polynomials of float32 by fused multiply-adds."""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from halide_backend.kernel_library.cuda import intrinsics

__all__ = ["fused_polynomial", "of_multiple"]


def fused_polynomial(x: hl.Expr, coefficients: Sequence[float]) -> hl.Expr:
    """Horner's rule, each step rounded once; coefficients from the highest power down."""
    result = hl.f32(coefficients[0])
    for coefficient in coefficients[1:]:
        result = intrinsics.fma(result, x, hl.f32(coefficient))
    return result


def of_multiple(coefficients: Sequence[float], factor: float) -> tuple[float, ...]:
    """The coefficients Q with Q(x) = P(factor x), of either from the highest power down."""
    highest = len(coefficients) - 1
    return tuple(coefficient * factor ** (highest - k) for k, coefficient in enumerate(coefficients))
