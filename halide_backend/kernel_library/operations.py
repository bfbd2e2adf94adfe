"""Inductor's elementwise operations as Halide expressions, with torch's semantics: what kernel texts import as `ops`.

Every function takes and returns `hl.Expr`s. Both operands have the same type: capture has promoted them. Values of
torch dtype float16 and bfloat16 are float32 expressions; they are rounded where they are cast or stored. A bool is a
UInt(1).
"""

from __future__ import annotations

import math

import halide as hl

from halide_backend.kernel_library import mathematics
from halide_backend.kernel_library.arithmetic import (
    abs,
    add,
    ceil,
    floor,
    floordiv,
    fma,
    fmod,
    identity,
    mod,
    mul,
    neg,
    one,
    pow,
    reciprocal,
    remainder,
    round,
    rsqrt,
    sqrt,
    square,
    sub,
    truediv,
    trunc,
    truncdiv,
    zero,
)
from halide_backend.kernel_library.bit_patterns import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    copysign,
    frexp_exponent,
    frexp_mantissa,
    isinf,
    isnan,
    ldexp,
    nextafter,
    signbit,
)
from halide_backend.kernel_library.conversions import (
    bitcast,
    constant,
    indirect,
    load,
    position,
    stored,
    to_dtype,
    upper_half,
)
from halide_backend.kernel_library.element_types import is_signed
from halide_backend.kernel_library.mathematics.floating_point import is_nan, opaque, without_bounds
from halide_backend.kernel_library.randomness import rand, randint64, randn

__all__ = [
    "abs",
    "add",
    "bitcast",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "constant",
    "copysign",
    "eq",
    "floor",
    "floordiv",
    "fma",
    "fmaximum",
    "fmod",
    "frexp_exponent",
    "frexp_mantissa",
    "ge",
    "gt",
    "identity",
    "indirect",
    "isinf",
    "isnan",
    "ldexp",
    "le",
    "load",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "lt",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "ne",
    "neg",
    "nextafter",
    "one",
    "opaque",
    "position",
    "pow",
    "rand",
    "randint64",
    "randn",
    "reciprocal",
    "relu",
    "remainder",
    "round",
    "rsqrt",
    "sign",
    "signbit",
    "sqrt",
    "square",
    "stored",
    "sub",
    "to_dtype",
    "truediv",
    "trunc",
    "truncdiv",
    "upper_half",
    "where",
    "zero",
]

_1 = hl.UInt(1)
_VALUE = (hl.Expr, hl.FuncRef)


def eq(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a == _compared(b)


def ne(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a != _compared(b)


def lt(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return _widened(a) < _compared(_widened(b))


def le(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    # Halide's x86 code for a vector a <= b is "not b < a": true for NaN.
    if a.type().is_float():
        return lt(a, b) | eq(a, b)
    return _widened(a) <= _widened(b)


def gt(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return _widened(a) > _compared(_widened(b))


def ge(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return le(b, a)


def _widened(x: hl.Expr) -> hl.Expr:
    return hl.cast(hl.UInt(8), x) if x.type() == _1 else x


def _compared(x: hl.Expr) -> hl.Expr:
    """One side of a comparison; what Halide proves of floats it proves of real numbers."""
    return opaque(x) if x.type().is_float() else x


def where(condition: hl.Expr, a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return hl.select(condition, a, b)


def maximum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The larger one; NaN if either is NaN."""
    if a.type() == _1:
        return a | b
    if not a.type().is_float():
        return hl.max(a, b)
    return _unless_nan(b, hl.select(gt(b, a), b, a))


def minimum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The smaller one; NaN if either is NaN."""
    if a.type() == _1:
        return a & b
    if not a.type().is_float():
        return hl.min(a, b)
    return _unless_nan(b, hl.select(lt(b, a), b, a))


def _unless_nan(b: hl.Expr, chosen: hl.Expr) -> hl.Expr:
    """NaN where b is, else `chosen` of a and b, which is a if that is NaN: one instruction of x86.

    Pooling combines what it has of a window, a, with the next element: only one instruction of two waits for a. With b
    in place of the constant, LLVM would join the two conditions, and all would wait.
    """
    return hl.select(is_nan(b), hl.cast(b.type(), hl.f32(math.nan)), chosen)


def fmaximum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """C++'s std::max: a where either is NaN."""
    return hl.select(lt(a, b), b, a)


def relu(x: hl.Expr) -> hl.Expr:
    if not is_signed(x):
        return x
    return hl.select(x < zero(x), zero(x), x)


def sign(x: hl.Expr) -> hl.Expr:
    if x.type() == _1:
        return x
    down = hl.select(x < zero(x), neg(one(x)), zero(x)) if is_signed(x) else zero(x)
    return hl.select(x > zero(x), one(x), down)


def logical_and(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a & b


def logical_or(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a | b


def logical_xor(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a != b


def logical_not(x: hl.Expr) -> hl.Expr:
    return ~x


def __getattr__(name: str) -> object:
    # The remaining functions are those of `mathematics`.
    function = getattr(mathematics, name)

    def of_any(*arguments: object) -> hl.Expr:
        return function(*(without_bounds(a) if isinstance(a, _VALUE) else a for a in arguments))

    return of_any
