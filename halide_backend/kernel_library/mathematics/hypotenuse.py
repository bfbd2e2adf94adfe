"""hypot."""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    float_format,
    head,
    is_infinite,
    rough_reciprocal,
    sum_in_two_parts,
)


def hypot(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """sqrt(x**2 + y**2) without overflow or underflow between; inf if either is infinite, even beside a NaN."""
    f = float_format(x)
    if f is BINARY32:
        a, b = hl.cast(hl.Float(64), x), hl.cast(hl.Float(64), y)
        root = hl.cast(hl.Float(32), hl.sqrt(a * a + b * b))
    else:
        root = _binary64_root(hl.abs(x), hl.abs(y))
    return hl.select(is_infinite(x) | is_infinite(y), f.value(math.inf), root)


def _binary64_root(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """sqrt(a**2 + b**2) to 0.502 ulps.

    Both squares and their sum are exact in two parts; one step of Newton's method, to first order in what the root of
    the first part lacks.
    """
    large, small = hl.select(a < b, b, a), hl.select(a < b, a, b)
    down, up = large > hl.f64(2.0**500), large < hl.f64(2.0**-500)
    scale = hl.select(down, hl.f64(2.0**-600), hl.select(up, hl.f64(2.0**600), hl.f64(1)))
    back = hl.select(down, hl.f64(2.0**600), hl.select(up, hl.f64(2.0**-600), hl.f64(1)))
    large, small = large * scale, small * scale
    h, k = head(large), head(small)
    heads, missing = sum_in_two_parts(h * h, k * k)
    square, rest = sum_in_two_parts(heads, (large - h) * (large + h) + (small - k) * (small + k))
    root = hl.sqrt(square)
    r = head(root)
    residual = ((square - r * r) - (root - r) * (root + r)) + (missing + rest)
    return (root + residual * rough_reciprocal(root + root)) * back
