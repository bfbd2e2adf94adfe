"""Reductions in forms that Halide can prove associative, so that a schedule may split them.

Halide knows sums, products, minimum, maximum and bitwise operators. torch's rules for NaN and ties are none of these,
so a float maximum runs over integer keys that order like the floats with NaN on top, and argmax is a maximum followed
by the smallest position that attains it, or one of numbers that are made of both.
"""

from __future__ import annotations

import halide as hl

from halide_backend.kernel_library.mathematics.floating_point import (
    BINARY32,
    BINARY64,
    float_format,
    from_bits,
    magnitude_bits,
    opaque,
    without_bounds,
)

#: The last position that an int32 holds.
_LAST = 2**31 - 1


def encode(kind: str, value: hl.Expr) -> hl.Expr:
    """`value` as the type that the reduction `kind` accumulates."""
    if kind in ("any", "all"):
        return hl.cast(hl.UInt(8), value)
    if kind == "xor_sum" or (kind in ("sum", "prod") and value.type().is_int()):
        # Signed overflow is undefined in Halide and wraps in torch.
        return hl.reinterpret(hl.UInt(value.type().bits()), value)
    if kind in ("max", "min", "argmax", "argmin") and value.type().is_float():
        return order_key(kind, value)
    if value.type() == hl.UInt(1):
        return hl.cast(hl.UInt(8), value)
    return value


def initial(kind: str, encoded: hl.Expr) -> hl.Expr:
    """The value of an empty reduction, of the type of `encoded`."""
    accumulator = encoded.type()
    if kind in ("max", "argmax"):
        return accumulator.min()
    if kind in ("min", "argmin"):
        return accumulator.max()
    return hl.cast(accumulator, hl.i32(1 if kind in ("prod", "all") else 0))


def combine(kind: str, total: hl.Expr, value: hl.Expr) -> hl.Expr:
    """One step of the reduction."""
    if kind == "sum":
        return total + value
    if kind == "prod":
        return total * value
    if kind == "xor_sum":
        return total ^ value
    return hl.max(total, value) if kind in ("max", "argmax", "any") else hl.min(total, value)


def decode(kind: str, original: hl.Type, total: hl.Expr) -> hl.Expr:
    """The result, in the type of the reduced values."""
    if kind in ("any", "all"):
        return total != hl.u8(0)
    if kind in ("max", "min") and original.is_float():
        return from_order_key(kind, original, total)
    if original == hl.UInt(1):
        return total != hl.u8(0)
    return hl.cast(original, total)


def order_key(kind: str, value: hl.Expr) -> hl.Expr:
    """A signed integer that orders as the float `value` does, -0.0 equal to 0.0, NaN where `kind` looks for it.

    It is the magnitude's bits, or their complement on one side of zero, by one comparison that is false for NaN, whose
    magnitude is beyond infinity. For minima that is the other side, and zeros are -1. One NaN is before another where
    their bits say so, except for the kinds that look for the first one.
    """
    f = float_format(value)
    word = hl.Int(f.width)
    magnitude = hl.reinterpret(word, magnitude_bits(without_bounds(value)))
    if kind.startswith("arg"):
        magnitude = hl.min(magnitude, hl.cast(word, f.word(f.infinity + 1)))
    compared = opaque(value)
    if kind.endswith("max"):
        return hl.select(compared < f.value(0), ~magnitude, magnitude)
    return hl.select(f.value(0) < compared, magnitude, ~magnitude)


def from_order_key(kind: str, original: hl.Type, key: hl.Expr) -> hl.Expr:
    """The float behind a key of `order_key`; NaN has no sign, and neither has zero."""
    f = BINARY32 if original.bits() == 32 else BINARY64
    magnitude = hl.reinterpret(f.bits_type, key ^ (key >> (f.width - 1)))
    if kind == "max":
        return from_bits(magnitude | (hl.reinterpret(f.bits_type, key) & f.word(f.sign)))
    # Zeros and NaN are below, too: at most one of the magnitudes less 1 is no number's.
    negative = hl.reinterpret(f.bits_type, ~key) - f.word(1) < f.word(f.infinity)
    return from_bits(hl.select(negative, magnitude | f.word(f.sign), magnitude))


def candidate(kind: str, key: hl.Expr, best: hl.Expr, position: hl.Expr | hl.Var) -> hl.Expr:
    """`position` where `key` is the best one, else a position after all others: the first of equals wins.

    Halide writes select(c, x - 1, largest) as select(c, x, largest + 1) - 1 and fails as that overflows, so it may not
    see what the position is made of.
    """
    return hl.select(key == best, without_bounds(hl.cast(hl.Int(32), position)), hl.Int(32).max())


def numbered(kind: str, key: hl.Expr, position: hl.Expr | hl.Var) -> hl.Expr:
    """The `key`, of 32 bits or fewer, and what tells its `position`, as one number: the best one is that of the first
    of equal keys.

    They are bits side by side: of a sum Halide takes a part out of a maximum, after which others overflow.
    """
    number = hl.cast(hl.Int(32), position)
    number = number if kind == "argmin" else number ^ hl.i32(_LAST)
    high = hl.cast(hl.UInt(64), hl.cast(hl.Int(64), key)) << hl.u64(32)
    return hl.reinterpret(hl.Int(64), high | hl.cast(hl.UInt(64), hl.cast(hl.UInt(32), number)))


def place(kind: str, best: hl.Expr) -> hl.Expr:
    """The position that the best number of `numbered` tells."""
    number = hl.cast(hl.Int(32), best & hl.i64(_LAST))
    return number if kind == "argmin" else number ^ hl.i32(_LAST)
