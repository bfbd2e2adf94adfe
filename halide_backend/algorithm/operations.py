"""Inductor's elementwise operations as Halide expressions, with torch's semantics.

Every function takes and returns `hl.Expr`s. Both operands have the same type: capture has promoted them. Values of
torch dtype float16 and bfloat16 are float32 expressions; they are rounded where they are cast or stored. A bool is a
UInt(1). Kernel texts import this module as `ops`.
"""

from __future__ import annotations

import halide as hl

from halide_backend.algorithm import mathematics, randomness
from halide_backend.algorithm.element_types import COMPUTE, is_signed, logical_bits

_1 = hl.UInt(1)


# -- leaves ------------------------------------------------------------------------------------------------------


def constant(dtype: str, value: float | int | bool) -> hl.Expr:
    """A number of the torch dtype `dtype`."""
    target = COMPUTE[dtype]
    if dtype == "bool":
        return hl.cast(_1, hl.u8(int(value)))
    if dtype in ("float32", "float16", "bfloat16"):
        return hl.f32(value)
    if dtype == "float64":
        return hl.f64(value)
    if target.bits() == 64:
        # Python hands numbers over as int64; a uint64 keeps its bits.
        signed = int(value) - 2**64 if int(value) >= 2**63 else int(value)
        return hl.cast(target, hl.i64(signed))
    return hl.cast(target, hl.i64(int(value)))


def load(dtype: str, element: hl.Expr) -> hl.Expr:
    """The value of a memory element of torch dtype `dtype`."""
    if dtype == "bool":
        return element != hl.u8(0)
    if dtype == "bfloat16":
        return hl.reinterpret(hl.Float(32), hl.cast(hl.UInt(32), element) << 16)
    if dtype == "float16":
        return hl.cast(hl.Float(32), element)
    return element


def stored(dtype: str, value: hl.Expr) -> hl.Expr:
    """`value` as a memory element of torch dtype `dtype`."""
    if dtype == "bool":
        return hl.cast(hl.UInt(8), value)
    if dtype == "bfloat16":
        return _bfloat16_bits(value)
    if dtype == "float16":
        return hl.cast(hl.Float(16), value)
    return value


def _bfloat16_bits(value: hl.Expr) -> hl.Expr:
    # Round to nearest even on the integer bits: vcvtneps2bf16 would flush denormals, and a NaN whose payload is rounded
    # away would become infinity.
    bits = hl.reinterpret(hl.UInt(32), value)
    rounded = (bits + hl.u32(0x7FFF) + ((bits >> 16) & hl.u32(1))) >> 16
    return hl.cast(hl.UInt(16), hl.select(hl.is_nan(value), (bits >> 16) | hl.u32(0x40), rounded))


def to_dtype(source: str, target: str, value: hl.Expr) -> hl.Expr:
    """torch's conversion between dtypes, rounding to float16 and bfloat16."""
    if target == "bool":
        return value != hl.cast(value.type(), hl.i32(0)) if source != "bool" else value
    if target in ("bfloat16", "float16"):
        single = hl.cast(hl.Float(32), value)
        return load(target, stored(target, single))
    kind = COMPUTE[target]
    if not (source.startswith(("float", "bfloat")) and not target.startswith("float")):
        return hl.cast(kind, value)
    # Out of range is undefined in C; these are the steps of torch's own conversion, as x86 executes them.
    if target in ("int8", "int16"):
        return hl.cast(kind, hl.cast(hl.Int(32), value))
    if target.startswith("uint"):
        return hl.cast(kind, hl.cast(hl.Int(64), value))
    return hl.cast(kind, value)


def bitcast(source: str, target: str, value: hl.Expr) -> hl.Expr:
    """The bits of a memory element of dtype `source`, read as dtype `target`."""
    bits = logical_bits(source)
    element = hl.reinterpret(hl.UInt(bits), stored(source, value)) if source != "bool" else stored(source, value)
    if target in ("bfloat16", "bool"):
        return load(target, element)
    if target == "float16":
        return load(target, hl.reinterpret(hl.Float(16), element))
    return hl.reinterpret(COMPUTE[target], element)


def position(dtype: str, index: hl.Expr | hl.Var) -> hl.Expr:
    """A loop coordinate as a value of torch dtype `dtype`."""
    return hl.cast(COMPUTE[dtype], index) if dtype != "bool" else hl.cast(hl.Int(32), index) != 0


def indirect(size: int, wrap_negative: bool, index: hl.Expr) -> hl.Expr:
    """An index read from data as an int32 coordinate in [0, size); negative ones count from the end."""
    # Compared in the index's own type: cutting a large int64 down first could bring it back into range.
    wide = hl.cast(hl.Int(64), index)
    if wrap_negative:
        wide = hl.select(wide < 0, wide + hl.i64(size), wide)
    return hl.cast(hl.Int(32), hl.clamp(wide, hl.i64(0), hl.i64(size - 1)))


# -- arithmetic --------------------------------------------------------------------------------------------------


def _wrapping(x: hl.Expr) -> bool:
    """Whether signed overflow would be undefined in Halide: 32 and 64 bit, where torch wraps."""
    return bool(x.type().is_int() and x.type().bits() >= 32)


def _unsigned(x: hl.Expr) -> hl.Expr:
    return hl.cast(hl.UInt(x.type().bits()), x)


def add(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    if a.type() == _1:
        return a | b
    return hl.cast(a.type(), _unsigned(a) + _unsigned(b)) if _wrapping(a) else a + b


def sub(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return hl.cast(a.type(), _unsigned(a) - _unsigned(b)) if _wrapping(a) else a - b


def mul(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    if a.type() == _1:
        return a & b
    return hl.cast(a.type(), _unsigned(a) * _unsigned(b)) if _wrapping(a) else a * b


def neg(x: hl.Expr) -> hl.Expr:
    if x.type().is_float():
        # Halide's own minus is 0 - x, which turns 0.0 into 0.0.
        return x * hl.cast(x.type(), hl.i32(-1))
    return hl.cast(x.type(), hl.cast(hl.UInt(x.type().bits()), hl.i32(0)) - _unsigned(x))


def fma(a: hl.Expr, b: hl.Expr, c: hl.Expr) -> hl.Expr:
    return add(mul(a, b), c)


def square(x: hl.Expr) -> hl.Expr:
    return mul(x, x)


def abs(x: hl.Expr) -> hl.Expr:
    if x.type().is_float():
        return hl.abs(x)
    if not x.type().is_int():
        return x
    return hl.select(x < zero(x), neg(x), x)


def truediv(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a / b


def reciprocal(x: hl.Expr) -> hl.Expr:
    return one(x) / x


def zero(x: hl.Expr) -> hl.Expr:
    """0 of the type of `x`."""
    return hl.cast(x.type(), hl.i32(0))


def one(x: hl.Expr) -> hl.Expr:
    """1 of the type of `x`."""
    return hl.cast(x.type(), hl.i32(1))


def identity(x: hl.Expr) -> hl.Expr:
    return x


def _divide(a: hl.Expr, b: hl.Expr) -> tuple[hl.Expr, hl.Expr, hl.Expr]:
    """Euclidean quotient and remainder by a divisor that can neither trap nor overflow, and that divisor.

    A divisor of 0 becomes 1 (the kernel's check reports it); -1 becomes 1 as well and the caller negates, because
    the smallest integer divided by -1 traps on x86.
    """
    bad = b == zero(b)
    if is_signed(b):
        bad = bad | (b == neg(one(b)))
    safe = hl.select(bad, one(b), b)
    return a / safe, a % safe, safe


def floordiv(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """Quotient rounded towards minus infinity."""
    quotient, rest, safe = _divide(a, b)
    if not is_signed(a):
        return quotient
    below = hl.select((rest != zero(a)) & (safe < zero(a)), sub(quotient, one(a)), quotient)
    return hl.select(b == neg(one(b)), neg(a), below)


def truncdiv(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """Quotient rounded towards zero."""
    quotient, rest, safe = _divide(a, b)
    if not is_signed(a):
        return quotient
    inexact = (rest != zero(a)) & (a < zero(a))
    up = hl.select(safe > zero(a), add(quotient, one(a)), sub(quotient, one(a)))
    return hl.select(b == neg(one(b)), neg(a), hl.select(inexact, up, quotient))


def mod(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """Remainder with the sign of the dividend (C's %)."""
    _, rest, safe = _divide(a, b)
    if not is_signed(a):
        return rest
    inexact = (rest != zero(a)) & (a < zero(a))
    return hl.select(inexact, sub(rest, abs(safe)), rest)


def fmod(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """Remainder with the sign of the dividend."""
    return mathematics.fmod(a, b) if a.type().is_float() else mod(a, b)


def remainder(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """Remainder with the sign of the divisor (Python's %)."""
    if a.type().is_float():
        rest = mathematics.fmod(a, b)
        wrong = (rest != zero(a)) & ((b < zero(a)) != (rest < zero(a)))
        return hl.select(wrong, rest + b, rest)
    _, rest, safe = _divide(a, b)
    if not is_signed(a):
        return rest
    return hl.select((rest != zero(a)) & (safe < zero(a)), add(rest, safe), rest)


# -- comparison and selection ------------------------------------------------------------------------------------


def eq(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a == b


def ne(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a != b


def lt(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return _widened(a) < _widened(b)


def le(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return _widened(a) <= _widened(b)


def gt(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return _widened(a) > _widened(b)


def ge(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return _widened(a) >= _widened(b)


def _widened(x: hl.Expr) -> hl.Expr:
    return hl.cast(hl.UInt(8), x) if x.type() == _1 else x


def where(condition: hl.Expr, a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return hl.select(condition, a, b)


def maximum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The larger one; NaN if either is NaN."""
    if a.type() == _1:
        return a | b
    if not a.type().is_float():
        return hl.max(a, b)
    return hl.select((a > b) | hl.is_nan(a), a, b)


def minimum(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    """The smaller one; NaN if either is NaN."""
    if a.type() == _1:
        return a & b
    if not a.type().is_float():
        return hl.min(a, b)
    return hl.select((a < b) | hl.is_nan(a), a, b)


def relu(x: hl.Expr) -> hl.Expr:
    if not is_signed(x):
        return x
    return hl.select(x < zero(x), zero(x), x)


def sign(x: hl.Expr) -> hl.Expr:
    if x.type() == _1:
        return x
    down = hl.select(x < zero(x), neg(one(x)), zero(x)) if is_signed(x) else zero(x)
    return hl.select(x > zero(x), one(x), down)


def signbit(x: hl.Expr) -> hl.Expr:
    if not is_signed(x):
        return hl.cast(_1, hl.u8(0))
    if x.type().is_float():
        x = hl.reinterpret(hl.Int(x.type().bits()), x)
    return x < zero(x)


def copysign(magnitude: hl.Expr, sign: hl.Expr) -> hl.Expr:
    bits = magnitude.type().bits()
    word = hl.UInt(bits)
    top = hl.cast(word, hl.u32(1)) << (bits - 1)
    joined = (hl.reinterpret(word, magnitude) & (top - one(top))) | (hl.reinterpret(word, sign) & top)
    return hl.reinterpret(magnitude.type(), joined)


def nextafter(x: hl.Expr, towards: hl.Expr) -> hl.Expr:
    """The next representable number after `x` in the direction of `towards`."""
    bits = x.type().bits()
    word = hl.Int(bits)
    pattern = hl.reinterpret(word, x)
    # Magnitudes order like their patterns: away from zero is one up.
    away = (towards > x) == (x > zero(x))
    one_further = hl.reinterpret(x.type(), hl.select(away, pattern + 1, pattern - 1))
    smallest = copysign(hl.reinterpret(x.type(), hl.cast(word, hl.i32(1))), towards)
    moved = hl.select(x == zero(x), smallest, one_further)
    same = hl.select(x == towards, towards, moved)
    return hl.select(hl.is_nan(x) | hl.is_nan(towards), x + towards, same)


def frexp_mantissa(x: hl.Expr) -> hl.Expr:
    """The mantissa in [0.5, 1) of `x = mantissa * 2**exponent`; zero, infinity and NaN are their own."""
    return _frexp(x)[0]


def frexp_exponent(x: hl.Expr) -> hl.Expr:
    """The int32 exponent of `x = mantissa * 2**exponent`; 0 for zero, infinity and NaN."""
    return _frexp(x)[1]


def _frexp(x: hl.Expr) -> tuple[hl.Expr, hl.Expr]:
    bits = x.type().bits()
    fraction, bias = (23, 127) if bits == 32 else (52, 1023)
    word = hl.Int(bits)
    top = 2 * bias + 1
    # A denormal is scaled into the normal range first, exactly.
    scale = hl.cast(x.type(), hl.f64(2.0 ** (fraction + 1)))
    tiny = ((hl.reinterpret(word, x) >> fraction) & hl.cast(word, hl.i32(top))) == hl.cast(word, hl.i32(0))
    pattern = hl.reinterpret(word, hl.select(tiny, x * scale, x))
    exponent = hl.cast(hl.Int(32), (pattern >> fraction) & hl.cast(word, hl.i32(top)))
    keep = ~(hl.cast(word, hl.i32(top)) << fraction)
    half = hl.cast(word, hl.i32(bias - 1)) << fraction
    mantissa = hl.reinterpret(x.type(), (pattern & keep) | half)
    itself = (x == zero(x)) | (exponent == top)
    shift = hl.select(tiny, hl.i32(fraction + 1), hl.i32(0))
    return (
        hl.select(itself, x, mantissa),
        hl.select(itself, hl.i32(0), exponent - (bias - 1) - shift),
    )


def isnan(x: hl.Expr) -> hl.Expr:
    return hl.is_nan(x) if x.type().is_float() else hl.cast(_1, hl.u8(0))


def isinf(x: hl.Expr) -> hl.Expr:
    return hl.is_inf(x) if x.type().is_float() else hl.cast(_1, hl.u8(0))


# -- logic and bits ----------------------------------------------------------------------------------------------


def logical_and(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a & b


def logical_or(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a | b


def logical_xor(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a != b


def logical_not(x: hl.Expr) -> hl.Expr:
    return ~x


def bitwise_and(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a & b


def bitwise_or(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a | b


def bitwise_xor(a: hl.Expr, b: hl.Expr) -> hl.Expr:
    return a != b if a.type() == _1 else a ^ b


def bitwise_not(x: hl.Expr) -> hl.Expr:
    return ~x


def bitwise_left_shift(x: hl.Expr, distance: hl.Expr) -> hl.Expr:
    """Shift left; 0 for a distance that is negative or not below the width, as in torch."""
    bits = x.type().bits()
    distance = hl.cast(hl.Int(64), distance)
    inside = (distance >= 0) & (distance < bits)
    word = hl.UInt(bits)
    shifted = hl.cast(word, x) << hl.cast(word, hl.clamp(distance, 0, bits - 1))
    return hl.select(inside, hl.cast(x.type(), shifted), zero(x))


def bitwise_right_shift(x: hl.Expr, distance: hl.Expr) -> hl.Expr:
    """Arithmetic shift right; a distance that is negative or not below the width shifts everything out."""
    bits = x.type().bits()
    distance = hl.cast(hl.Int(64), distance)
    inside = (distance >= 0) & (distance < bits)
    full = bits - 1 if is_signed(x) else bits
    capped = hl.select(inside, distance, hl.i64(min(full, bits - 1)))
    shifted = x >> hl.cast(hl.UInt(bits), capped)
    return shifted if is_signed(x) else hl.select(inside, shifted, zero(x))


# -- rounding and functions --------------------------------------------------------------------------------------


def floor(x: hl.Expr) -> hl.Expr:
    return hl.floor(x) if x.type().is_float() else x


def ceil(x: hl.Expr) -> hl.Expr:
    return hl.ceil(x) if x.type().is_float() else x


def trunc(x: hl.Expr) -> hl.Expr:
    return hl.trunc(x) if x.type().is_float() else x


def round(x: hl.Expr) -> hl.Expr:
    """To the nearest integer, halves to even (Halide's and torch's rule alike)."""
    return hl.round(x) if x.type().is_float() else x


def sqrt(x: hl.Expr) -> hl.Expr:
    return mathematics.sqrt(x)


def rsqrt(x: hl.Expr) -> hl.Expr:
    return mathematics.rsqrt(x)


def pow(base: hl.Expr, exponent: hl.Expr) -> hl.Expr:
    """Power; for integers the exponent is not negative, as torch demands."""
    if base.type().is_float():
        return mathematics.pow(base, exponent)
    result, factor = one(base), base
    for bit in range(6):
        taken = ((exponent >> hl.cast(hl.UInt(exponent.type().bits()), hl.u32(bit))) & one(exponent)) != zero(exponent)
        result = hl.select(taken, mul(result, factor), result)
        factor = mul(factor, factor)
    return result


def rand(seed: hl.Expr, offset: hl.Expr) -> hl.Expr:
    return randomness.rand(seed, offset)


def randn(seed: hl.Expr, offset: hl.Expr) -> hl.Expr:
    return randomness.randn(seed, offset)


def randint64(seed: hl.Expr, offset: hl.Expr, low: hl.Expr, high: hl.Expr) -> hl.Expr:
    return randomness.randint64(seed, offset, low, high)


def __getattr__(name: str) -> object:
    # The remaining functions are `mathematics` as it stands.
    return getattr(mathematics, name)
