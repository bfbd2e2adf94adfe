"""Constants of which all lanes are the same, but for those that nothing needs.

Where the last vector of a row is partly empty, LLVM leaves out the lanes of constants that reach no result. The
patterns of the other modules here are of whole constants: of rows of 37 elements the last vector had seven instructions
for each exponential that others have one for (build/llvm/scaled_products.py).
"""

from __future__ import annotations

import re

_CONSTANT = re.compile(r"<(?P<type>i\d+|float|double) (?P<lanes>[^<>\n]*\bpoison\b[^<>\n]*)>")


def with_whole_constants(ir: str) -> str:
    """LLVM IR that computes the same, with a number in place of every lane of a constant that may be anything, if all
    others have that number."""

    def whole(constant: re.Match[str]) -> str:
        kind = constant["type"]
        numbers = set(constant["lanes"].split(f", {kind} ")) - {"poison"}
        return f"splat ({kind} {numbers.pop()})" if len(numbers) == 1 else constant[0]

    if "poison, " not in ir:
        return ir
    lines = ir.split("\n")
    return "\n".join(line if "shufflevector" in line else _CONSTANT.sub(whole, line) for line in lines)
