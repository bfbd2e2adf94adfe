"""A way around a fault in Halide: no access promises more than the alignment of an element.

Halide boosts the alignment of a load as far as its index allows, and takes that back for external buffers. It finds
those by their parameter, which the load of an *output* (a scatter reads what it adds to) does not carry: such a load
promises 64 bytes for memory that torch aligned to an element, and a tensor that starts in the middle of another one
ends the process. LLVM believes it of the store to the same place too, once it has moved that out of a loop. Unaligned
accesses to aligned memory cost nothing on any AVX processor.
"""

from __future__ import annotations

import re

_BYTES = {"i8": 1, "half": 2, "bfloat": 2, "i16": 2, "float": 4, "i32": 4, "double": 8, "i64": 8}
_TYPE = rf"(?:<\d+ x )?(?P<type>{'|'.join(_BYTES)})\b>?"
_PLAIN = re.compile(
    rf"^(?P<before> *(?:%[^\n=]+ = load|store) {_TYPE}[^\n]*?, ptr [^\n]*?, align )(?P<bytes>\d+)", re.MULTILINE
)
_MASKED = re.compile(
    r"(?P<before>@llvm\.masked\.(?:load|store)\.v\d+(?P<type>[a-z]+\d+)\.[^\n]*?ptr [^\n]*?, i32 )(?P<bytes>\d+)(?=, <)"
)
_BYTES_OF_BOTH = {**_BYTES, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}


def with_element_alignment(ir: str) -> str:
    """LLVM IR in which no load and no store assumes that its address is aligned to more than one element."""

    def lowered(match: re.Match[str]) -> str:
        element = _BYTES_OF_BOTH[match["type"]]
        return f"{match['before']}{min(element, int(match['bytes']))}"

    return _MASKED.sub(lowered, _PLAIN.sub(lowered, ir))
