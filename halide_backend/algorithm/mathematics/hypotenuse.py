"""hypot."""

from __future__ import annotations

import math

import halide as hl

from halide_backend.algorithm.mathematics.floating_point import head, in_binary64, is_infinite


@in_binary64
def hypot(x: hl.Expr, y: hl.Expr) -> hl.Expr:
    """sqrt(x**2 + y**2) without overflow or underflow between; inf if either is infinite, even beside a NaN.

    The larger square is exact in two parts, so the root is of a sum with one rounding.
    """
    a, b = hl.abs(x), hl.abs(y)
    large, small = hl.select(a < b, b, a), hl.select(a < b, a, b)
    down, up = large > hl.f64(2.0**500), large < hl.f64(2.0**-500)
    scale = hl.select(down, hl.f64(2.0**-600), hl.select(up, hl.f64(2.0**600), hl.f64(1)))
    back = hl.select(down, hl.f64(2.0**600), hl.select(up, hl.f64(2.0**-600), hl.f64(1)))
    large, small = large * scale, small * scale
    h = head(large)
    root = hl.sqrt(h * h + ((large - h) * (large + h) + small * small))
    infinite = is_infinite(x) | is_infinite(y)
    return hl.select(infinite, hl.f64(math.inf), root * back)
