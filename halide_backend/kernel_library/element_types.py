"""torch dtypes as Halide types: in memory, and while computing."""

from __future__ import annotations

import halide as hl

from halide_backend.program.dtypes import FLOAT8, NARROW_FLOATS

#: dtype -> type of an element in memory. A bool is a byte; a bfloat16 is its 16 bits, because Halide emulates
#: bfloat16 arithmetic and aborts on it for CUDA.
STORAGE = {
    "bool": hl.UInt(8),
    "uint8": hl.UInt(8),
    "uint16": hl.UInt(16),
    "uint32": hl.UInt(32),
    "uint64": hl.UInt(64),
    "int8": hl.Int(8),
    "int16": hl.Int(16),
    "int32": hl.Int(32),
    "int64": hl.Int(64),
    "float16": hl.Float(16),
    "bfloat16": hl.UInt(16),
    "float32": hl.Float(32),
    "float64": hl.Float(64),
    **dict.fromkeys(FLOAT8, hl.UInt(8)),
}

#: dtype -> type of a value in an expression.
COMPUTE = STORAGE | {"bool": hl.UInt(1)} | dict.fromkeys(NARROW_FLOATS, hl.Float(32))


def is_signed(x: hl.Expr) -> bool:
    """Whether the type of `x` has negative values."""
    return bool(x.type().is_int() or x.type().is_float())


def logical_bits(dtype: str) -> int:
    """Bits of one element in memory."""
    return int(STORAGE[dtype].bits())
