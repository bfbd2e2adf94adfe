"""torch's dtypes: how their elements lie in memory."""

from __future__ import annotations

#: torch dtype -> (halide_type_code_t, bits) of its elements in memory: bool is a byte, bfloat16 and float8 are words.
ELEMENT = {
    "bool": (1, 8),
    "uint8": (1, 8),
    "uint16": (1, 16),
    "uint32": (1, 32),
    "uint64": (1, 64),
    "int8": (0, 8),
    "int16": (0, 16),
    "int32": (0, 32),
    "int64": (0, 64),
    "float16": (2, 16),
    "bfloat16": (1, 16),
    "float32": (2, 32),
    "float64": (2, 64),
    "float8_e4m3fn": (1, 8),
    "float8_e4m3fnuz": (1, 8),
    "float8_e5m2": (1, 8),
    "float8_e5m2fnuz": (1, 8),
}
#: They are stored, loaded and converted; torch has no arithmetic of them.
FLOAT8 = frozenset(name for name in ELEMENT if name.startswith("float8"))
#: The dtypes of keys that have 32 bits, with a sign, or fewer: with a place each is a number of 64 bits.
NUMBERED = frozenset({"bool", "int8", "uint8", "int16", "int32", "float16", "bfloat16", "float32"})
#: The dtypes whose values are float32 while computing.
NARROW_FLOATS = frozenset(name for name, (_, bits) in ELEMENT.items() if "float" in name and bits < 32)
