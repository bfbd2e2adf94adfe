"""log1p of float32, and of an exponential, with fused multiply-adds, of which a GPU has four for each other
instruction on two numbers."""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import operations as portable
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.polynomial import fused_polynomial
from halide_backend.kernel_library.mathematics.floating_point import BINARY32
from halide_backend.kernel_library.mathematics.logarithm import LOG1P_UNIT_32, LOG_32, START

__all__ = ["log1p", "log1p_of_exp", "rough_log", "rough_log1p", "rough_log2", "rough_log10"]

_BITS = hl.UInt(32)


def log1p(x: hl.Expr) -> hl.Expr:
    """log(1 + x) = e ln2 + log(1 + f), f = (1 + x) 2**-e - 1, which one fused multiply-add rounds but once.

    The scale is 2**(2 - e), a normal number also for the largest e. At most 1.4 ulp (tests/codegen/cuda/test_log1p.py).
    """
    start = hl.reinterpret(_BITS, hl.f32(START[BINARY32]))
    exponent = (hl.reinterpret(_BITS, x + hl.f32(1)) - start) & hl.u32(0xFF800000)
    scale = hl.reinterpret(hl.Float(32), hl.u32(129 << 23) - exponent)
    f = intrinsics.fma(x * hl.f32(0.25), scale, intrinsics.fma(scale, hl.f32(0.25), hl.f32(-1)))
    bend = fused_polynomial(f, (*LOG_32, -0.5))
    e = hl.cast(hl.Float(32), hl.reinterpret(hl.Int(32), exponent))
    y = intrinsics.fma(e, hl.f32(math.log(2) * 2.0**-23), intrinsics.fma(f * f, bend, f))
    edge = hl.select(x == hl.f32(-1), hl.f32(-math.inf), hl.select(x < hl.f32(-1), hl.f32(math.nan), x))
    # Zeros keep their sign, infinity, NaN and what is tiny are themselves.
    inside = (x > hl.f32(-1)) & (x < hl.f32(math.inf)) & (portable.abs(x) > hl.f32(2.0**-25))
    return hl.select(inside, y, edge)


def rough_log1p(x: hl.Expr) -> hl.Expr:
    """log(1 + x) by the special function unit, whose error is absolute, or near zero by four terms of its series."""
    return _near_or_far(x, intrinsics.log2_of_normal(x + hl.f32(1)), math.e)


def rough_log(x: hl.Expr) -> hl.Expr:
    return _near_or_far(x - hl.f32(1), intrinsics.log2(x), math.e)


def rough_log2(x: hl.Expr) -> hl.Expr:
    return _near_or_far(x - hl.f32(1), intrinsics.log2(x), 2)


def rough_log10(x: hl.Expr) -> hl.Expr:
    return _near_or_far(x - hl.f32(1), intrinsics.log2(x), 10)


def _near_or_far(x: hl.Expr, log2: hl.Expr, base: float) -> hl.Expr:
    """The logarithm of 1 + x to `base` from that to 2."""
    near = x * fused_polynomial(x, [coefficient / math.log(base) for coefficient in (-1 / 4, 1 / 3, -1 / 2, 1)])
    far = log2 if base == 2 else log2 * hl.f32(math.log(2) / math.log(base))
    return hl.select(portable.abs(x) < hl.f32(1 / 16), near, far)


def log1p_of_exp(x: hl.Expr) -> hl.Expr:
    """log(1 + exp(x)) = max(x, 0) + log(1 + t), t = exp(-|x|) <= 1, of which the logarithm is one polynomial."""
    t = intrinsics.exp2(portable.abs(x) * hl.f32(-1 / math.log(2)))
    bend = fused_polynomial(t, LOG1P_UNIT_32)
    return intrinsics.maximum(x, hl.f32(0)) + intrinsics.fma(t * t, bend, t)
