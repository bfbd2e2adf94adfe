"""Values from and to memory, between dtypes, and from loop coordinates."""

from __future__ import annotations

import functools
import math
import operator

import halide as hl

from halide_backend.kernel_library.element_types import COMPUTE, logical_bits
from halide_backend.kernel_library.float8 import FORMATS
from halide_backend.kernel_library.mathematics.floating_point import is_nan, opaque, without_bounds
from halide_backend.program.dtypes import FLOAT8, NARROW_FLOATS


def constant(dtype: str, value: float | int | bool) -> hl.Expr:
    """A number of the torch dtype `dtype`."""
    target = COMPUTE[dtype]
    if dtype == "bool":
        return hl.cast(hl.UInt(1), hl.u8(int(value)))
    if target == hl.Float(32):
        return _minus_zero(target) if _is_minus_zero(value) else hl.f32(value)
    if dtype == "float64":
        return _minus_zero(target) if _is_minus_zero(value) else hl.f64(value)
    if target.bits() == 64:
        # Python hands numbers over as int64; a uint64 keeps its bits.
        signed = int(value) - 2**64 if int(value) >= 2**63 else int(value)
        return hl.cast(target, hl.i64(signed))
    return hl.cast(target, hl.i64(int(value)))


def _is_minus_zero(value: float | int | bool) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def _minus_zero(dtype: hl.Type) -> hl.Expr:
    """-0.0 by its bits: Halide takes equal numbers for the same, and would put 0.0 wherever a kernel has both."""
    bits = dtype.bits()
    return hl.reinterpret(dtype, hl.cast(hl.UInt(bits), 1) << (bits - 1))


def load(dtype: str, element: hl.Expr) -> hl.Expr:
    """The value of a memory element of torch dtype `dtype`."""
    if dtype == "bool":
        return element != hl.u8(0)
    if dtype == "bfloat16":
        return hl.reinterpret(hl.Float(32), hl.cast(hl.UInt(32), element) << 16)
    if dtype == "float16":
        return hl.cast(hl.Float(32), element)
    if dtype in FLOAT8:
        return FORMATS[dtype].decoded(element)
    return element


def stored(dtype: str, value: hl.Expr) -> hl.Expr:
    """`value` as a memory element of torch dtype `dtype`."""
    if dtype == "bool":
        return hl.cast(hl.UInt(8), value)
    if dtype == "bfloat16":
        return _bfloat16_bits(value)
    if dtype == "float16":
        return _float16(value)
    if dtype in FLOAT8:
        return FORMATS[dtype].encoded(value)
    return value


def upper_half(value: hl.Expr) -> hl.Expr:
    """A float32 that is a bfloat16 number as a memory element, which is what `stored` makes of it with 9 operations."""
    return hl.cast(hl.UInt(16), hl.reinterpret(hl.UInt(32), value) >> 16)


def _bfloat16_bits(value: hl.Expr) -> hl.Expr:
    # Round to nearest even on the integer bits: vcvtneps2bf16 would flush denormals, and a NaN whose payload is rounded
    # away would become infinity.
    bits = hl.reinterpret(hl.UInt(32), value)
    rounded = (bits + hl.u32(0x7FFF) + ((bits >> 16) & hl.u32(1))) >> 16
    return hl.cast(hl.UInt(16), hl.select(is_nan(value), (bits >> 16) | hl.u32(0x40), rounded))


def _float16(value: hl.Expr) -> hl.Expr:
    # Where the processor has no such conversion, Halide's own makes infinity of NaN. It is true of the rest, and where
    # there is one nothing of this remains.
    features = (hl.TargetFeature.F16C, hl.TargetFeature.CUDA, hl.TargetFeature.ARMFp16)
    has_conversion = functools.reduce(operator.or_, map(hl.target_has_feature, features))
    bits = hl.reinterpret(hl.UInt(32), hl.cast(hl.Float(32), value))
    nan = ((bits >> 16) & hl.u32(0x8000)) | ((bits >> 13) & hl.u32(0x1FF)) | hl.u32(0x7E00)
    half = hl.reinterpret(hl.Float(16), hl.cast(hl.UInt(16), nan))
    # Halide leaves out the inner one of two casts to narrower types, but float64 is rounded to float32 before, as torch
    # does: 1 + 2**-11 + 2**-30 is 1. LLVM removes the multiplication, and keeps both.
    rounded = hl.cast(hl.Float(16), value * hl.f32(1))
    return hl.select(is_nan(value) & ~has_conversion, half, rounded)


def to_dtype(source: str, target: str, value: hl.Expr) -> hl.Expr:
    """torch's conversion between dtypes, rounding to the narrow floats."""
    if target == "bool":
        return value != hl.cast(value.type(), hl.i32(0)) if source != "bool" else value
    if target in NARROW_FLOATS:
        single = hl.cast(hl.Float(32), value)
        return load(target, stored(target, single))
    kind = COMPUTE[target]
    if not (source.startswith(("float", "bfloat")) and not target.startswith("float")):
        return hl.cast(kind, _of_any_size(kind, value))
    # Out of range is undefined in C; these are the steps of torch's own conversion, as x86 executes them.
    if target in ("int8", "int16"):
        return hl.cast(kind, _truncated(value, 32))
    if target == "uint8" and value.type() == hl.Float(32):
        return _low_byte(value)
    if target.startswith("uint"):
        return hl.cast(kind, _truncated(value, 64))
    return _truncated(value, kind.bits())


def _truncated(value: hl.Expr, bits: int) -> hl.Expr:
    """A float as a signed integer, the smallest one for NaN (what x86 gives).

    The selection also keeps Halide from folding this cast with one to an unsigned type around it, which negative
    values would not survive: it makes one cast to uint32 of a cast to int32 and a reinterpretation.
    """
    kind = hl.Int(bits)
    return hl.select(is_nan(value), kind.min(), hl.cast(kind, _of_any_size(kind, value)))


def _low_byte(value: hl.Expr) -> hl.Expr:
    """A float32 as an int64 of which the lowest byte remains, by way of an int32 except on CUDA.

    AVX2 has no vector instruction for int64. From 2^31 on a float32 is a multiple of 256, and what does not fit into
    an int64 either gives its smallest, whose lowest byte is 0, too; on CUDA it may be the largest.
    """
    fits = hl.abs(value) < hl.f32(2**31)
    narrow = hl.select(fits, hl.cast(hl.Int(32), _of_any_size(hl.Int(32), value)), hl.i32(0))
    wide = _truncated(value, 64)
    on_cuda = hl.target_has_feature(hl.TargetFeature.CUDA)
    return hl.select(on_cuda, hl.cast(hl.UInt(8), wide), hl.cast(hl.UInt(8), narrow))


def _of_any_size(kind: hl.Type, value: hl.Expr) -> hl.Expr:
    """`value`, which may not fit into `kind`."""
    source = value.type()
    wraps = kind.is_int() and kind.bits() >= 32 and source.bits() >= 32 and not kind.can_represent(source)
    return without_bounds(value) if wraps else value


def bitcast(source: str, target: str, value: hl.Expr) -> hl.Expr:
    """The bits of a memory element of dtype `source`, read as dtype `target`."""
    bits = logical_bits(source)
    element = hl.reinterpret(hl.UInt(bits), stored(source, value)) if source != "bool" else stored(source, value)
    if target in ("bfloat16", "bool", *FLOAT8):
        return load(target, element)
    if target == "float16":
        return load(target, hl.reinterpret(hl.Float(16), element))
    return hl.reinterpret(COMPUTE[target], without_bounds(element) if bits >= 32 else element)


def position(dtype: str, index: hl.Expr | hl.Var) -> hl.Expr:
    """A loop coordinate as a value of torch dtype `dtype`."""
    return hl.cast(COMPUTE[dtype], index) if dtype != "bool" else hl.cast(hl.Int(32), index) != 0


def indirect(size: int, wrap_negative: bool, index: hl.Expr) -> hl.Expr:
    """An index read from data as an int32 coordinate in [0, size); negative ones count from the end.

    What lies outside becomes the last one: a check of the program reports it.
    """
    # Compared in the index's own type: cutting a large int64 down first could bring it back into range.
    bits = 32 if index.type().bits() < 32 or index.type() == hl.Int(32) else 64
    wide = hl.cast(hl.Int(bits), index)
    size, last = hl.cast(wide.type(), size), hl.cast(wide.type(), size - 1)
    if wrap_negative:
        wide = hl.select(wide < 0, wide + size, wide)
    # One comparison without a sign. Halide finds bounds of signed ones alone, which LLVM leaves out; opaque, since its
    # simplifier, too, finds them useless, and its bounds inference need not know why.
    nearest = hl.cast(wide.type(), hl.min(hl.cast(hl.UInt(bits), wide), hl.cast(hl.UInt(bits), last)))
    return hl.cast(hl.Int(32), hl.clamp(opaque(nearest), hl.cast(wide.type(), 0), last))
