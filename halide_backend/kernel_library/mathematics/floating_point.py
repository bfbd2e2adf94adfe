"""The two floating-point formats the functions compute in, and the moves on their bits.

Every function here is exact or rounds once, whether or not the code generator contracts a*b+c. Bits are unsigned Exprs
(UInt(32) or UInt(64), as wide as the float): unsigned arithmetic wraps, where Halide's int32 overflow is undefined.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import halide as hl

ROOT_HALF = math.sqrt(0.5)


@dataclass(frozen=True)
class FloatFormat:
    """An IEEE binary format.

    width: bits in all. mantissa: stored mantissa bits. bias: of the exponent field.
    """

    width: int
    mantissa: int
    bias: int

    def value(self, number: float) -> hl.Expr:
        """A constant of this format, rounded to nearest."""
        return hl.f32(number) if self.width == 32 else hl.f64(number)

    def word(self, number: int) -> hl.Expr:
        """A constant of the unsigned integer as wide as this format."""
        number &= (1 << self.width) - 1
        return hl.u32(number) if self.width == 32 else hl.u64(number)

    @property
    def float_type(self) -> hl.Type:
        return hl.Float(self.width)

    @property
    def bits_type(self) -> hl.Type:
        return hl.UInt(self.width)

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def infinity(self) -> int:
        """The bits of +inf."""
        return ((1 << (self.width - 1 - self.mantissa)) - 1) << self.mantissa

    @property
    def smallest_normal(self) -> float:
        return float(2.0 ** (1 - self.bias))

    @property
    def integer_offset(self) -> float:
        """1.5 * 2**mantissa: t + offset has round(t) in its low bits (two's complement) for |t| < 2**(mantissa - 2)."""
        return 1.5 * float(2**self.mantissa)

    @property
    def whole_exponent(self) -> float:
        """2**mantissa + bias: the number whose low bits are the biased exponent 0."""
        return float(2**self.mantissa + self.bias)


BINARY32 = FloatFormat(width=32, mantissa=23, bias=127)
BINARY64 = FloatFormat(width=64, mantissa=52, bias=1023)


def float_format(x: hl.Expr) -> FloatFormat:
    """The format of x. TypeError unless x is Float(32) or Float(64): narrower floats are widened by the caller."""
    kind = _type(x)
    if kind == hl.Float(32):
        return BINARY32
    if kind == hl.Float(64):
        return BINARY64
    raise TypeError(f"mathematics takes Float(32) or Float(64), not {kind}: cast the argument first")


def _type(x: hl.Expr) -> hl.Type:
    # x may also be a FuncRef or a Param, which have no type of their own.
    return (x if isinstance(x, hl.Expr) else hl.Expr(x)).type()


def to_bits(x: hl.Expr) -> hl.Expr:
    return hl.reinterpret(float_format(x).bits_type, x)


def from_bits(bits: hl.Expr) -> hl.Expr:
    return hl.reinterpret(hl.Float(bits.type().bits()), bits)


def magnitude_bits(x: hl.Expr) -> hl.Expr:
    """The bits of |x|; they order as |x| does, inf above all numbers, NaN above inf."""
    f = float_format(x)
    return to_bits(x) & f.word(f.sign - 1)


def sign_bits(x: hl.Expr) -> hl.Expr:
    f = float_format(x)
    return to_bits(x) & f.word(f.sign)


def negate(x: hl.Expr) -> hl.Expr:
    """-x; Halide's own unary minus is 0 - x, which loses the sign of zero."""
    f = float_format(x)
    return from_bits(to_bits(x) ^ f.word(f.sign))


def with_sign_of(magnitude: hl.Expr, sign: hl.Expr) -> hl.Expr:
    """magnitude (>= 0, or NaN) with the sign bit of `sign`."""
    return from_bits(to_bits(magnitude) | sign_bits(sign))


def head(x: hl.Expr, factors: int = 2) -> hl.Expr:
    """x truncated to so few mantissa bits that the product of `factors` heads is exact; x - head(x) is exact too."""
    f = float_format(x)
    bits = (f.mantissa + 1) // factors
    return from_bits(to_bits(x) & f.word(-1 << (f.mantissa + 1 - bits)))


def sum_in_two_parts(large: hl.Expr, small: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(sum, rounding error of it) where large is 0 or above small in size (Dekker's fast two-sum)."""
    total = large + small
    return total, small - (total - large)


def two_sum(a: hl.Expr, b: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(sum, rounding error of it), either the larger (Knuth's two-sum)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def remainder(a: hl.Expr, q: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a - q b, where q is a/b to a few last places."""
    q_head, b_head = head(q), head(b)
    return ((a - q_head * b_head) - q_head * (b - b_head)) - (q - q_head) * b


def quotient_of_sums(a: hl.Expr, a_rest: hl.Expr, b: hl.Expr, b_rest: hl.Expr) -> hl.Expr:
    """(a + a_rest) / (b + b_rest), a_rest far below a and b_rest below the last place of b.

    A remainder makes the quotient of its head; of a rounded product a contraction could take what is not rounded.
    """
    reciprocal = quotient(float_format(b).value(1), b)
    q, b_head = head(a * reciprocal), head(b)
    return q + (((a - q * b_head) - q * (b - b_head)) + (a_rest - q * b_rest)) * reciprocal


def cube_in_two_parts(x: hl.Expr, factor: float) -> tuple[hl.Expr, hl.Expr]:
    """(high, low): factor x**3 to 2**-64 of it, high exact in binary64; factor has at most 13 bits."""
    h, f = head(x, 4), float_format(x).value(factor)
    return (h * h) * (h * f), (x - h) * f * (x * x + h * (x + h))


def odd_series(x: hl.Expr, cubic: float, rest: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """x + cubic x**3 + rest in two parts, the second as small as rest; |cubic x**2| <= 1, see `cube_in_two_parts`."""
    high, low = cube_in_two_parts(x, cubic)
    total, missing = sum_in_two_parts(x, high)
    return total, missing + (low + rest)


def at_most(x: hl.Expr, bound: float) -> hl.Expr:
    """min(x, bound), NaN stays NaN."""
    b = float_format(x).value(bound)
    return hl.select(x > b, b, x)


def at_least(x: hl.Expr, bound: float) -> hl.Expr:
    """max(x, bound), NaN stays NaN."""
    b = float_format(x).value(bound)
    return hl.select(x < b, b, x)


def without_bounds(x: hl.Expr) -> hl.Expr:
    """x, of 32 or 64 bits, of which Halide no longer knows a largest and a smallest value.

    It carries those of integers and selections through all arithmetic behind them, in time exponential in its depth: a
    minute for erfcx of a bool. And it takes for granted that a value cast to int32 or int64 fits: the bits of a
    bfloat16, 16 bits shifted by 16, were below zero to it, for the largest are (its Bounds.cpp and TrimNoOps.cpp).
    """
    word = hl.UInt(_type(x).bits())
    return hl.reinterpret(_type(x), hl.reinterpret(word, x) ^ hl.cast(word, hl.i32(0)))


def quotient(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """a / b where b may be zero.

    Halide refuses a divisor of constant zero, of floats too, and in lanes that a predicate has switched off every load
    is one. b - 0 equals b for all b, -0.0 among them, is no constant to Halide, and LLVM removes it.
    """
    return a / (b - float_format(b).value(0))


def round_to_integer(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    """(nearest integer as a float, the same as bits in two's complement), ties to even, |x| < 2**(mantissa - 2)."""
    f = float_format(x)
    shifted = x + f.value(f.integer_offset)
    bits = to_bits(shifted) - to_bits(f.value(f.integer_offset))
    return shifted - f.value(f.integer_offset), bits


def times_power_of_two(x: hl.Expr, k: hl.Expr) -> hl.Expr:
    """x * 2**k, rounded once. k: bits in two's complement, -2 bias < k < 2 bias; x is finite, or NaN."""
    f = float_format(x)
    biased = k + f.word(2 * f.bias)
    first = biased >> f.word(1)
    second = biased - first
    shift = f.word(f.mantissa)
    return x * from_bits(first << shift) * from_bits(second << shift)


def power_of_two(k: hl.Expr) -> hl.Expr:
    """2**k as a float. k: bits in two's complement, -bias < k <= bias."""
    f = BINARY32 if k.type().bits() == 32 else BINARY64
    return from_bits((k + f.word(f.bias)) << f.word(f.mantissa))


def positive_normal(x: hl.Expr, exponent: float = 0.0) -> tuple[hl.Expr, hl.Expr]:
    """(x scaled into the normal range, `exponent` plus what to add to that of x), x positive."""
    f = float_format(x)
    tiny = x < f.value(f.smallest_normal)
    scale = f.mantissa + 1
    normal = hl.select(tiny, x * f.value(2.0**scale), x)
    return normal, hl.select(tiny, f.value(exponent - scale), f.value(exponent))


def split_exponent(x: hl.Expr, start: float = ROOT_HALF) -> tuple[hl.Expr, hl.Expr]:
    """(m, e): x = m * 2**e with m in [start, 2 start), 1/2 < start <= 1, e a float. x is positive and normal."""
    f = float_format(x)
    return _split(x, f.value(-f.whole_exponent), start)


def split_positive(x: hl.Expr, start: float = ROOT_HALF) -> tuple[hl.Expr, hl.Expr]:
    """`split_exponent` of a positive x that may be denormal."""
    return _split(*positive_normal(x, -float_format(x).whole_exponent), start)


def _split(x: hl.Expr, offset: hl.Expr, start: float) -> tuple[hl.Expr, hl.Expr]:
    """`split_exponent` of x; offset is added to 2**mantissa + bias + e."""
    f = float_format(x)
    first = int.from_bytes(struct.pack("<f" if f.width == 32 else "<d", start), "little")
    one = f.bias << f.mantissa
    shifted = to_bits(x) + f.word(one - first)
    m = from_bits((shifted & f.word((1 << f.mantissa) - 1)) + f.word(first))
    # 2**mantissa has unit last place 1: its low bits hold the biased exponent as an integer.
    whole = (f.bias + f.mantissa) << f.mantissa
    return m, from_bits((shifted >> f.word(f.mantissa)) | f.word(whole)) + offset


def rough_reciprocal(x: hl.Expr) -> hl.Expr:
    """1/x to 0.003 of it, some number for x = 0; binary64, x below 2**1022 and not denormal.

    To 0.05 by the difference of the bits, whose constant makes the errors above and below equal, and one step of
    Newton's method.
    """
    y = from_bits(hl.u64(0x7FDE623822FC16E6) - to_bits(x))
    return y * (hl.f64(2) - x * y)


def opaque(value: hl.Expr) -> hl.Expr:
    """`value`, of any type, of which Halide can prove nothing, not even that it is equal to itself.

    Its proofs take floats for real numbers whatever the target says: `x != x` is never true to it, `x - x` is zero, and
    a computed int32 never overflows. By them it leaves out steps of loops that change nothing (trim_no_ops), and
    chooses values where it splits a loop in two (partition_loops). What it knows of popcount is from 0 to its bits;
    LLVM knows that no bit of the mask is set.
    """
    kind = _type(value)
    word = hl.UInt(kind.bits())
    pattern = hl.reinterpret(word, value)
    nothing = hl.popcount(pattern) & ~hl.cast(word, hl.i32(2 * kind.bits() - 1))
    return hl.reinterpret(kind, pattern ^ nothing)


def is_nan(x: hl.Expr) -> hl.Expr:
    """Whether x is NaN, a comparison.

    Halide's own is_nan walks through x as a tree, for which a float64 cosine alone is more than 4 GB; and it makes a
    scalar of a vector of constants, which loads become whose lanes are all off.
    """
    return x != opaque(x)


def is_infinite(x: hl.Expr) -> hl.Expr:
    f = float_format(x)
    return magnitude_bits(x) == f.word(f.infinity)


def in_binary64(function: Callable[..., hl.Expr]) -> Callable[..., hl.Expr]:
    """The function for Float(64), and for Float(32) by rounding its Float(64) result."""

    @wraps(function)
    def either(*arguments: hl.Expr) -> hl.Expr:
        f = float_format(arguments[0])
        if f is BINARY64:
            return function(*arguments)
        wide = (hl.cast(hl.Float(64), a) for a in arguments)
        return hl.cast(f.float_type, function(*wide))

    return either
