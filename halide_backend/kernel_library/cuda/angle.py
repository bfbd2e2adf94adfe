"""sin, cos and tan of float64: the CPU's, after an argument reduction that is long for large angles alone."""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import operations as portable
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.mathematics.floating_point import BINARY64, from_bits, to_bits, two_sum
from halide_backend.kernel_library.mathematics.trigonometric import sine_of_parts, tangent_of_parts

__all__ = ["cos", "sin", "tan"]

#: pi/2 in three parts.
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)


def sin(x: hl.Expr) -> hl.Expr:
    return sine_of_parts(x, _reduced(x), 0)


def cos(x: hl.Expr) -> hl.Expr:
    return sine_of_parts(x, _reduced(x), 1)


def tan(x: hl.Expr) -> hl.Expr:
    return tangent_of_parts(x, _reduced(x))


def _reduced(x: hl.Expr) -> tuple[hl.Expr, hl.Expr, hl.Expr]:
    """As `mathematics.angle.reduce_angle_64`, of |x| below 2**30 by what it leaves of the nearest multiple of pi/2.

    The first difference is exact, the product with the second part is taken in two, and the third one leaves 2**-130.
    """
    a, offset = hl.abs(x), hl.f64(BINARY64.integer_offset)
    shifted = intrinsics.fma(a, hl.f64(2 / math.pi), offset)
    whole = shifted - offset
    first, second, third = (hl.f64(-part) for part in _HALF_PI)
    # By a call, since a product that is rounded could become one with the sums that follow.
    product = intrinsics.fma(whole, second, hl.f64(0))
    lost = intrinsics.fma(whole, second, portable.neg(product))
    r, rest = two_sum(intrinsics.fma(whole, first, a), product)
    low = intrinsics.fma(whole, third, rest + lost)
    marked = from_bits((to_bits(low) & hl.u64(2**64 - 4)) | (to_bits(shifted) & hl.u64(3)))
    low = intrinsics.rest_of_large_angle(a, marked)
    return to_bits(low), intrinsics.of_large_angle(a, r), low
