"""The 8-bit floats: bytes in memory, float32 while computing, rounded as torch rounds (c10/util/Float8_*.h)."""

from __future__ import annotations

from dataclasses import dataclass

import halide as hl


@dataclass(frozen=True)
class Float8:
    """One sign bit, then the exponent, then `mantissa` bits; `bias` of the exponent.

    Codes of magnitude `special` and more are no numbers: `overflow` is what too large a value becomes (infinity, where
    the format has one, or the largest number), `nan` what NaN becomes. The formats without a negative zero ("fnuz")
    use its code for both.
    """

    mantissa: int
    bias: int
    special: int
    overflow: int
    nan: int
    has_negative_zero: bool = True

    def decoded(self, code: hl.Expr) -> hl.Expr:
        """The float32 value of a byte."""
        bits = hl.cast(hl.UInt(32), code)
        magnitude = bits & hl.u32(0x7F)
        sign = (bits >> 7) << 31
        shift = 23 - self.mantissa
        normal = hl.reinterpret(hl.Float(32), (magnitude << shift) + hl.u32((127 - self.bias) << 23))
        # Not by an addition of floats: a program may have switched off float32's own subnormal numbers.
        small = hl.cast(hl.Float(32), magnitude) * hl.f32(2.0 ** (1 - self.bias - self.mantissa))
        value = hl.select(magnitude < (1 << self.mantissa), small, normal)
        value = hl.reinterpret(hl.Float(32), hl.reinterpret(hl.UInt(32), value) | sign)
        nan = hl.reinterpret(hl.Float(32), sign | hl.u32(0x7FC00000))
        if not self.has_negative_zero:
            return hl.select(bits == hl.u32(0x80), nan, value)
        infinity = hl.reinterpret(hl.Float(32), sign | hl.u32(0x7F800000))
        wrong = hl.select(magnitude == self.overflow, infinity, nan) if self.overflow >= self.special else nan
        return hl.select(magnitude >= self.special, wrong, value)

    def encoded(self, value: hl.Expr) -> hl.Expr:
        """The byte of a float32 value, rounded to nearest, ties to even."""
        bits = hl.reinterpret(hl.UInt(32), value)
        magnitude = bits & hl.u32(0x7FFFFFFF)
        shift = 23 - self.mantissa
        odd = (magnitude >> shift) & hl.u32(1)
        rebias = ((self.bias - 127) << 23) & 0xFFFFFFFF
        normal = (magnitude + hl.u32(rebias) + hl.u32((1 << (shift - 1)) - 1) + odd) >> shift
        # The sum's last place is the format's smallest number, so the addition rounds to it.
        unit = (127 - self.bias + shift + 1) << 23
        shifted = hl.reinterpret(hl.Float(32), magnitude) + hl.reinterpret(hl.Float(32), hl.u32(unit))
        small = hl.reinterpret(hl.UInt(32), shifted) - hl.u32(unit)
        code = hl.select(magnitude < hl.u32((128 - self.bias) << 23), small, normal)
        infinity = hl.u32(0x7F800000)
        # An infinity's exponent overflows in `normal` and wraps.
        code = hl.select((magnitude >= infinity) | (code >= self.special), hl.u32(self.overflow), code)
        code = hl.select(magnitude > infinity, hl.u32(self.nan), code)
        sign = (bits >> 31) << 7
        if not self.has_negative_zero:
            sign = hl.select(code == hl.u32(0), hl.u32(0), sign)
        return hl.cast(hl.UInt(8), code | sign)


#: By torch dtype.
FORMATS = {
    "float8_e4m3fn": Float8(mantissa=3, bias=7, special=0x7F, overflow=0x7E, nan=0x7F),
    "float8_e4m3fnuz": Float8(3, 8, special=0x80, overflow=0x80, nan=0x80, has_negative_zero=False),
    "float8_e5m2": Float8(mantissa=2, bias=15, special=0x7C, overflow=0x7C, nan=0x7F),
    "float8_e5m2fnuz": Float8(2, 16, special=0x80, overflow=0x80, nan=0x80, has_negative_zero=False),
}
