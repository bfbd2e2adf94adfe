"""Inductor's elementwise operations on CUDA: those of the CPU, but for what the GPU has instructions for.

`exp` and what is made of it have the accuracy of Inductor's Triton kernels (the special function unit's 2**x), and
random numbers have the bits that Inductor's Triton kernels draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import halide as hl

from halide_backend.kernel_library import mathematics
from halide_backend.kernel_library import operations as portable
from halide_backend.kernel_library.arithmetic import of_sign_of_divisor
from halide_backend.kernel_library.conversions import bitcast, load
from halide_backend.kernel_library.cuda import (
    angle,
    bessel,
    error_functions,
    gamma,
    intrinsics,
    logarithm,
    power,
    rough_functions,
    wide_functions,
)
from halide_backend.kernel_library.cuda.randomness import rand, randint64, randn
from halide_backend.kernel_library.mathematics.error_function import ERF_32, LOG_ERFC_32
from halide_backend.kernel_library.mathematics.floating_point import at_most
from halide_backend.kernel_library.mathematics.hyperbolic import TANH_32
from halide_backend.kernel_library.mathematics.polynomial import polynomial
from halide_backend.kernel_library.mathematics.trigonometric import sine_of

__all__ = [
    "bitcast",
    "cos",
    "divide",
    "divide_bfloat16_into_code",
    "divide_by_constant",
    "divide_by_power_of_two",
    "divide_by_shared",
    "divide_into_code",
    "erf",
    "exp",
    "exp2",
    "fmod",
    "indirect",
    "load",
    "log1p_of_exp",
    "maximum",
    "minimum",
    "pow",
    "power_of_number",
    "rand",
    "randint64",
    "randn",
    "relu",
    "remainder",
    "rough_divide_by_shared",
    "rough_divide_by_sum",
    "rough_exp",
    "rough_reciprocal",
    "rough_sqrt",
    "rsqrt",
    "sigmoid",
    "sin",
    "stored",
    "tan",
    "tanh",
    "tanh_of_softplus",
    "to_dtype",
]

_SINGLE = hl.Float(32)

_Function = Callable[[hl.Expr], hl.Expr]

#: What has functions of float32 and nothing else.
_MODULES = (bessel, error_functions, gamma, logarithm, rough_functions, wide_functions)


def __getattr__(name: str) -> object:
    """Functions of float32 of modules of their own, beside the CPU's of float64 if they are not rough; all else is the
    CPU's."""
    for module in _MODULES:
        if name in module.__all__:
            single = getattr(module, name)
            return single if name.startswith("rough_") else _of_either(single, getattr(mathematics, name))
    return getattr(portable, name)


def _of_either(single: _Function, double: _Function) -> _Function:
    """A function of float32 and one of float64 as one of both."""
    return lambda x: single(x) if x.type() == _SINGLE else double(x)


def stored(dtype: str, value: hl.Expr) -> hl.Expr:
    """`value` as a memory element of torch dtype `dtype`."""
    if dtype == "bfloat16":
        return hl.cast(hl.UInt(16), intrinsics.bfloat16_pair(value, value))
    if dtype == "float16":
        return hl.reinterpret(hl.Float(16), hl.cast(hl.UInt(16), intrinsics.float16_pair(value, value)))
    return portable.stored(dtype, value)


def to_dtype(source: str, target: str, value: hl.Expr) -> hl.Expr:
    """torch's conversion between dtypes, rounding to float16 and bfloat16."""
    if target in ("bfloat16", "float16"):
        return load(target, stored(target, hl.cast(_SINGLE, value)))
    if target in ("int8", "int16") and value.type() == _SINGLE:
        return hl.cast(hl.Int(int(target[3:])), intrinsics.truncated(value))
    return portable.to_dtype(source, target, value)


def exp(x: hl.Expr) -> hl.Expr:
    if x.type() != _SINGLE:
        return mathematics.exp(x)
    return intrinsics.exp2(x * hl.f32(1 / math.log(2)))


def exp2(x: hl.Expr) -> hl.Expr:
    return intrinsics.exp2(x) if x.type() == _SINGLE else mathematics.exp2(x)


def erf(x: hl.Expr) -> hl.Expr:
    """The CPU's formula with the special function unit's exponential, whose error is that of a small complement."""
    if x.type() != _SINGLE:
        return mathematics.erf(x)
    a = portable.abs(x)
    complement = exp(portable.neg(polynomial(at_most(a, 4.0), LOG_ERFC_32)))
    near = x * polynomial(x * x, ERF_32) + x
    return hl.select(a < hl.f32(0.9), near, portable.copysign(hl.f32(1) - complement, x))


def indirect(size: int, wrap_negative: bool, index: hl.Expr) -> hl.Expr:
    """An index read from data as an int32 coordinate in [0, size); negative ones count from the end."""
    if index.type() != hl.Int(32):
        return portable.indirect(size, wrap_negative, index)
    index = portable.opaque(index)
    if wrap_negative:
        index = hl.select(index < 0, index + size, index)
    return hl.clamp(index, 0, size - 1)


def log1p_of_exp(x: hl.Expr) -> hl.Expr:
    """log(1 + exp(x)) of a float32."""
    return logarithm.log1p_of_exp(x)


def tanh_of_softplus(x: hl.Expr) -> hl.Expr:
    """tanh(log(1 + e)) = e (e + 2) / (e (e + 2) + 2) with e = exp(x), of a float32; 1 from x = 20 on."""
    e = exp(intrinsics.minimum(x, hl.f32(20)))
    n = intrinsics.fma(e, e, e * hl.f32(2))
    return n * intrinsics.reciprocal_of_normal(n + hl.f32(2))


def pow(base: hl.Expr, exponent: hl.Expr) -> hl.Expr:
    return power.pow(base, exponent) if base.type() == _SINGLE else portable.pow(base, exponent)


def power_of_number(base: float, exponent: hl.Expr) -> hl.Expr:
    """A power of a finite `base` above 0 that is not 1, in float32."""
    return power.power_of_number(base, exponent)


def sigmoid(x: hl.Expr) -> hl.Expr:
    if x.type() != _SINGLE:
        return mathematics.sigmoid(x)
    return intrinsics.divide(hl.f32(1), hl.f32(1) + exp(portable.neg(x)))


def tanh(x: hl.Expr) -> hl.Expr:
    """Odd polynomial for |x| < 1, 1 - 2/(exp(2|x|) + 1) beyond."""
    if x.type() != _SINGLE:
        return mathematics.tanh(x)
    a = portable.abs(x)
    z = a * a
    small = intrinsics.fma(a * z, polynomial(z, TANH_32), a)
    # Neither the exponential of a positive number nor what is divided by is denormal.
    exponential = intrinsics.exp2_of_normal(a * hl.f32(2 / math.log(2)))
    large = intrinsics.fma(hl.f32(-2), intrinsics.reciprocal_of_normal(exponential + hl.f32(1)), hl.f32(1))
    return portable.copysign(hl.select(a < hl.f32(1), small, large), x)


def tan(x: hl.Expr) -> hl.Expr:
    return wide_functions.tan(x) if x.type() == _SINGLE else angle.tan(x)


def rsqrt(x: hl.Expr) -> hl.Expr:
    return intrinsics.rsqrt(x) if x.type() == _SINGLE else portable.rsqrt(x)


def sin(x: hl.Expr) -> hl.Expr:
    return sine_of(x, *intrinsics.angle(portable.abs(x)), 0) if x.type() == _SINGLE else angle.sin(x)


def cos(x: hl.Expr) -> hl.Expr:
    return sine_of(x, *intrinsics.angle(portable.abs(x)), 1) if x.type() == _SINGLE else angle.cos(x)


def fmod(a: hl.Expr, b: hl.Expr, *, in_vectors: bool = False) -> hl.Expr:
    """Remainder with the sign of the dividend, of float32 by a branch: the long way is rare."""
    return intrinsics.remainder(a, b) if a.type() == _SINGLE else portable.fmod(a, b, in_vectors=in_vectors)


def remainder(a: hl.Expr, b: hl.Expr, *, in_vectors: bool = False) -> hl.Expr:
    """The same with the sign of the divisor."""
    if a.type() != _SINGLE:
        return portable.remainder(a, b, in_vectors=in_vectors)
    return of_sign_of_divisor(intrinsics.remainder(a, b), b)


def divide(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b, of float32 within 2 ulp."""
    return intrinsics.divide(a, b) if a.type() == _SINGLE else portable.truediv(a, b)


def rough_divide_by_sum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b of float32 within 2 ulp, where many `a` have the same `b`, a sum from 1 on of what is at most 1."""
    return a * intrinsics.reciprocal_of_normal(b)


def rough_divide_by_shared(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b, of float32 within 2 ulp, where many `a` have the same `b`, which a power of two brings to where its
    reciprocal is normal; infinities, NaN and denormals are kept."""
    if a.type() != _SINGLE:
        return portable.truediv(a, b)
    size = portable.abs(b)
    large = hl.select(size > hl.f32(2.0**125), hl.f32(0.25), hl.f32(1))
    scale = hl.select(size < hl.f32(2.0**-126), hl.f32(2.0**24), large)
    return a * scale * intrinsics.reciprocal_of_normal(b * scale)


def rough_exp(x: hl.Expr) -> hl.Expr:
    """exp(x) of a float32 as `exp`, but that denormal results are zero: one instruction in place of four."""
    return intrinsics.exp2_of_normal(x * hl.f32(1 / math.log(2)))


def rough_reciprocal(x: hl.Expr) -> hl.Expr:
    """1 / x, of float32 within 2 ulp."""
    return intrinsics.divide(hl.f32(1), x) if x.type() == _SINGLE else portable.reciprocal(x)


def rough_sqrt(x: hl.Expr) -> hl.Expr:
    """The square root, of float32 within 2 ulp."""
    return intrinsics.sqrt(x) if x.type() == _SINGLE else portable.sqrt(x)


def divide_by_constant(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b, of float32 rounded as IEEE's wherever the result is no denormal.

    The processor's own division has a branch, and threads wait before it for what they need. A quotient of 24 bits by
    24 bits is never nearer than 2**-49 to the middle of two floats; the product in float64 is wrong by 2**-52.
    """
    if a.type() != _SINGLE:
        return portable.truediv(a, b)
    wide = hl.Float(64)
    return hl.cast(_SINGLE, hl.cast(wide, a) * (hl.f64(1) / hl.cast(wide, b)))


def divide_by_power_of_two(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b of a constant `b`, whose reciprocal is exact: a product, in place of one in float64 and two conversions."""
    return a * (hl.f32(1) / b) if a.type() == _SINGLE else portable.truediv(a, b)


def divide_into_code(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b of float32, where many `a` have the same `b`, for a quotient of which nothing shows but what it is rounded
    to: as `divide_by_shared`, but no tiny quotient is exact, and zeros have no sign."""
    return _into_code(a, b, 2)


def divide_bfloat16_into_code(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The same of an `a` that is a bfloat16 number. One step is enough: of its 128 mantissas and the 2**23 of `b` all
    were tried."""
    return _into_code(a, b, 1)


def _into_code(a: hl.Expr, b: hl.Expr, steps: int) -> hl.Expr:
    if a.type() != _SINGLE:
        return portable.truediv(a, b)
    infinite, size = hl.f32(float("inf")), portable.abs(b)
    # One scale for all `a`: what overflows, or is lost, by it is far beyond any code, or rounded to 0.
    large = hl.select(size > hl.f32(2.0**60), hl.f32(2.0**-64), hl.f32(1))
    scale = hl.select(size < hl.f32(2.0**-60), hl.f32(2.0**64), large)
    scaled = b * scale
    reciprocal = hl.f32(1) / scaled
    divisor = hl.select(portable.abs(scaled) < infinite, scaled, hl.f32(0))
    dividend = a * scale
    first = quotient = dividend * reciprocal
    for _ in range(steps):
        rest = intrinsics.fma(portable.neg(quotient), divisor, dividend)
        quotient = intrinsics.fma(rest, reciprocal, quotient)
    return hl.select(portable.abs(first) < infinite, quotient, first)


def divide_by_shared(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b, of float32 rounded as IEEE's wherever the result is no denormal, where many `a` have the same `b`.

    The processor's own division has a branch, and a reciprocal for each `a`. Here a quotient q within one ulp gets
    q + (a - q*b)/b, which Markstein (2000) proves right for a reciprocal that is itself rounded right. Powers of two
    keep all steps in range: `b` is brought between 1 and 4, and tiny `a` are made larger.
    """
    if a.type() != _SINGLE:
        return portable.truediv(a, b)
    exponent = hl.min((hl.reinterpret(hl.UInt(32), b) >> hl.u32(23)) & hl.u32(255), hl.u32(253))
    power = hl.reinterpret(_SINGLE, (hl.u32(254) - exponent) << hl.u32(23))
    scaled = b * power
    reciprocal = hl.f32(1) / scaled
    infinite = hl.f32(float("inf"))
    divisor = hl.select(portable.abs(scaled) < infinite, scaled, hl.f32(0))
    # Only of a denormal `b` a quotient can be too large, and its result is infinite long before.
    limit = hl.select(exponent == hl.u32(0), hl.f32(2.0**100), infinite)
    # By its bits: |a|, which the compiler finds elsewhere too, would stay in a register of its own.
    tiny = hl.reinterpret(hl.UInt(32), a) << hl.u32(1) < hl.u32((127 - 100) << 24)
    dividend = hl.select(tiny, a * hl.f32(2.0**64), a)
    first = dividend * reciprocal
    quotient = first
    for _ in range(2):
        rest = intrinsics.fma(portable.neg(quotient), divisor, dividend)
        quotient = intrinsics.fma(rest, reciprocal, quotient)
    # Infinities, NaN and the sign of a zero are right as they are.
    quotient = hl.select(portable.abs(first) < limit, portable.copysign(quotient, first), first)
    return quotient * hl.select(tiny, power * hl.f32(2.0**-64), power)


def maximum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The larger one; NaN if either is NaN."""
    return intrinsics.maximum(a, b) if a.type() == _SINGLE else portable.maximum(a, b)


def minimum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The smaller one; NaN if either is NaN."""
    return intrinsics.minimum(a, b) if a.type() == _SINGLE else portable.minimum(a, b)


def relu(x: hl.Expr) -> hl.Expr:
    return intrinsics.maximum(x, hl.f32(0)) if x.type() == _SINGLE else portable.relu(x)
