"""Arithmetic with torch's rules: integers wrap, divisions round as asked and never trap."""

from __future__ import annotations

import halide as hl

from halide_backend.kernel_library import mathematics
from halide_backend.kernel_library.element_types import is_signed
from halide_backend.kernel_library.mathematics.floating_point import is_nan, quotient, without_bounds

_1 = hl.UInt(1)


def zero(x: hl.Expr) -> hl.Expr:
    """0 of the type of `x`."""
    return hl.cast(x.type(), hl.i32(0))


def one(x: hl.Expr) -> hl.Expr:
    """1 of the type of `x`."""
    return hl.cast(x.type(), hl.i32(1))


def _wrapping(x: hl.Expr) -> bool:
    """Whether signed overflow would be undefined in Halide: 32 and 64 bit, where torch wraps."""
    return bool(x.type().is_int() and x.type().bits() >= 32)


def _unsigned(x: hl.Expr) -> hl.Expr:
    # Not a cast: Halide folds a float's cast to int32 and on to uint32 into one, which negative values do not survive.
    return hl.reinterpret(hl.UInt(x.type().bits()), x)


def _signed(kind: hl.Type, word: hl.Expr) -> hl.Expr:
    """The wrapped result in two's complement, of which Halide must not take for granted that it fits."""
    return hl.reinterpret(kind, without_bounds(word))


def add(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    if a.type() == _1:
        return a | b
    return _signed(a.type(), _unsigned(a) + _unsigned(b)) if _wrapping(a) else a + b


def sub(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return _signed(a.type(), _unsigned(a) - _unsigned(b)) if _wrapping(a) else a - b


def mul(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    if a.type() == _1:
        return a & b
    return _signed(a.type(), _unsigned(a) * _unsigned(b)) if _wrapping(a) else a * b


def neg(x: hl.Expr) -> hl.Expr:
    if x.type().is_float():
        # Halide's own minus is 0 - x, which turns 0.0 into 0.0.
        return x * hl.cast(x.type(), hl.i32(-1))
    negative = hl.cast(hl.UInt(x.type().bits()), hl.i32(0)) - _unsigned(x)
    return _signed(x.type(), negative) if _wrapping(x) else hl.reinterpret(x.type(), negative)


def fma(a: hl.Expr, b: hl.Expr, c: hl.Expr) -> hl.Expr:
    return add(mul(a, b), c)


def square(x: hl.Expr) -> hl.Expr:
    return mul(x, x)


def abs(x: hl.Expr) -> hl.Expr:
    if x.type().is_float():
        # Not hl.abs, which keeps the sign of a float64 -0.0.
        word = hl.Int(x.type().bits())
        return hl.reinterpret(x.type(), hl.reinterpret(word, x) & word.max())
    if not x.type().is_int():
        return x
    return hl.select(x < zero(x), neg(x), x)


def truediv(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return quotient(a, b)


def reciprocal(x: hl.Expr) -> hl.Expr:
    return truediv(one(x), x)


def identity(x: hl.Expr) -> hl.Expr:
    return x


def _divide(a: hl.Expr, b: hl.Expr, in_vectors: bool) -> tuple[hl.Expr, hl.Expr, hl.Expr]:
    """Euclidean quotient and remainder by a divisor that can neither trap nor overflow, and that divisor.

    A divisor of 0 becomes 1 (the kernel's check reports it); -1 becomes 1 as well and the caller negates, because
    the smallest integer divided by -1 traps on x86.
    """
    bad = b == zero(b)
    if is_signed(b):
        bad = bad | (b == neg(one(b)))
    safe = hl.select(bad, one(b), b)
    if in_vectors and a.type().bits() < 64:
        return *_divide_in_vectors(a, safe), safe
    quotient = a / safe
    # One division: LLVM makes another one of Halide's remainder of vectors.
    return quotient, sub(a, mul(quotient, safe)) if in_vectors else a % safe, safe


def _divide_in_vectors(a: hl.Expr, b: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """Euclidean quotient and remainder from a division of floating-point numbers, which processors have for vectors.

    Where |a| < 2**p, for p bits of a significand, the quotient is off by less than |a/b| 2**-p < 1/|b|, by which one
    that is not whole is away from whole numbers: it is cut off right.
    """
    real = hl.Float(32 if a.type().bits() <= 16 else 64)
    ratio = hl.cast(real, a) / hl.cast(real, b)
    # Or Halide makes one cast to uint32 of that to int32 and a reinterpretation, which negative values do not survive.
    # No comparison of `b`: that it is not 0 Halide may see in one of the loops that it makes of one.
    quotient = hl.select(is_nan(ratio), zero(a), hl.cast(a.type(), ratio))
    rest = sub(a, mul(quotient, b))
    if not is_signed(a):
        return quotient, rest
    below = rest < zero(a)
    towards = hl.select(b < zero(a), add(quotient, one(a)), sub(quotient, one(a)))
    return hl.select(below, towards, quotient), hl.select(below, add(rest, abs(b)), rest)


def floordiv(a: hl.Expr, b: hl.Expr, *, in_vectors: bool = False) -> hl.Expr:
    """Quotient rounded towards minus infinity; `in_vectors` where no instruction divides vectors of integers, and the
    divisor is no number."""
    quotient, rest, safe = _divide(a, b, in_vectors)
    if not is_signed(a):
        return quotient
    below = hl.select((rest != zero(a)) & (safe < zero(a)), sub(quotient, one(a)), quotient)
    return hl.select(b == neg(one(b)), neg(a), below)


def truncdiv(a: hl.Expr, b: hl.Expr, *, in_vectors: bool = False) -> hl.Expr:
    """Quotient rounded towards zero; `in_vectors` as of `floordiv`."""
    quotient, rest, safe = _divide(a, b, in_vectors)
    if not is_signed(a):
        return quotient
    inexact = (rest != zero(a)) & (a < zero(a))
    up = hl.select(safe > zero(a), add(quotient, one(a)), sub(quotient, one(a)))
    return hl.select(b == neg(one(b)), neg(a), hl.select(inexact, up, quotient))


def mod(a: hl.Expr, b: hl.Expr, *, in_vectors: bool = False) -> hl.Expr:
    """Remainder with the sign of the dividend (C's %); `in_vectors` as of `floordiv`."""
    _, rest, safe = _divide(a, b, in_vectors)
    if not is_signed(a):
        return rest
    inexact = (rest != zero(a)) & (a < zero(a))
    return hl.select(inexact, sub(rest, abs(safe)), rest)


def fmod(a: hl.Expr, b: hl.Expr, *, in_vectors: bool = False) -> hl.Expr:
    """Remainder with the sign of the dividend; `in_vectors` as of `floordiv`."""
    return mathematics.fmod(a, b) if a.type().is_float() else mod(a, b, in_vectors=in_vectors)


def remainder(a: hl.Expr, b: hl.Expr, *, in_vectors: bool = False) -> hl.Expr:
    """Remainder with the sign of the divisor (Python's %); `in_vectors` as of `floordiv`."""
    if a.type().is_float():
        return of_sign_of_divisor(mathematics.fmod(a, b), b)
    _, rest, safe = _divide(a, b, in_vectors)
    if not is_signed(a):
        return rest
    return hl.select((rest != zero(a)) & (safe < zero(a)), add(rest, safe), rest)


def of_sign_of_divisor(rest: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The remainder of a division by `b` that has the sign of `b`, by one that has that of what is divided."""
    wrong = (rest != zero(rest)) & ((b < zero(b)) != (rest < zero(rest)))
    return hl.select(wrong, rest + b, rest)


def pow(base: hl.Expr, exponent: hl.Expr) -> hl.Expr:
    """Power; of integers only with exponents below 64 (Inductor leaves variable integer exponents to ATen)."""
    if base.type().is_float():
        return mathematics.pow(without_bounds(base), without_bounds(exponent))
    result, factor = one(base), base
    for bit in range(6):
        taken = ((exponent >> hl.cast(hl.UInt(exponent.type().bits()), hl.u32(bit))) & one(exponent)) != zero(exponent)
        result = hl.select(taken, mul(result, factor), result)
        factor = mul(factor, factor)
    return result


def sqrt(x: hl.Expr) -> hl.Expr:
    return mathematics.sqrt(x)


def rsqrt(x: hl.Expr) -> hl.Expr:
    return mathematics.rsqrt(x)


def floor(x: hl.Expr) -> hl.Expr:
    return hl.floor(x) if x.type().is_float() else x


def ceil(x: hl.Expr) -> hl.Expr:
    return hl.ceil(x) if x.type().is_float() else x


def trunc(x: hl.Expr) -> hl.Expr:
    return hl.trunc(x) if x.type().is_float() else x


def round(x: hl.Expr) -> hl.Expr:
    """To the nearest integer, halves to even (Halide's and torch's rule alike)."""
    return hl.round(x) if x.type().is_float() else x
