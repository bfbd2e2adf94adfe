"""A way around a fault in Halide: vector loads promise no more than the alignment of an element.

Halide boosts the alignment of a load as far as its index allows, and takes that back for external buffers. It finds
those by their parameter, which the load of an *output* (a scatter reads what it adds to) does not carry: such a load
promises 64 bytes for memory that torch aligned to an element, and a tensor that starts in the middle of another one
ends the process. Unaligned loads from aligned memory cost nothing on any AVX processor.
"""

from __future__ import annotations

import re

_BYTES = {"i8": 1, "half": 2, "bfloat": 2, "i16": 2, "float": 4, "i32": 4, "double": 8, "i64": 8}
_TYPES = "|".join(_BYTES)
_LOAD = re.compile(rf"(= load <\d+ x ({_TYPES})>, ptr [^\n]*?, align )\d+")
_MASKED_LOAD = re.compile(
    rf"(@llvm\.masked\.load\.[\w.]+\(ptr [^\n]*?, i32 )\d+(?=, <\d+ x i1> [^\n]*, <\d+ x ({_TYPES})>)"
)


def with_element_alignment(ir: str) -> str:
    """LLVM IR in which no vector load assumes that its address is aligned to more than one element."""

    def lowered(match: re.Match[str]) -> str:
        return f"{match[1]}{_BYTES[match[2]]}"

    return _MASKED_LOAD.sub(lowered, _LOAD.sub(lowered, ir))
