"""A way around a fault in LLVM: masked stores of a single lane become plain stores.

Seen with LLVM 22.1 for every AVX-512 processor: where a vector is truncated (int32 to int16, say) and stored under a
constant mask with exactly one lane, instruction selection folds the truncation into the store and then stores that lane
in its *wide* type, two or four bytes where one or two belong. Every tail of one element (extents 17, 33, 65, ...) of a
narrow output would write beyond its end. tests/build/llvm/test_single_lane_stores.py watches whether the fault is still
there.
"""

from __future__ import annotations

import re

from halide_backend.build.llvm.ir_syntax import NAME

_MASKED_STORE = re.compile(
    r"^(?P<indent> *)(?:tail )?call void @llvm\.masked\.store\.[\w.]+\("
    rf"<(?P<lanes>\d+) x (?P<type>\w+)> (?P<value>{NAME}), "
    rf"ptr (?:\w+ )*(?P<pointer>{NAME})(?:, i32 \d+)?, "  # LLVM 22 prints the alignment with the pointer
    r"<\d+ x i1> <(?P<mask>[^>]*)>\)[^\n]*$",
    re.MULTILINE,
)


def without_single_lane_stores(ir: str) -> str:
    """LLVM IR in which no masked store has a constant mask with exactly one lane."""
    number = 0

    def plain(match: re.Match[str]) -> str:
        nonlocal number
        lanes = [lane.strip() == "i1 true" for lane in match["mask"].split(",")]
        if lanes.count(True) != 1:
            return match[0]
        number += 1
        lane, element = lanes.index(True), f"%single.lane.{number}"
        indent, type_ = match["indent"], match["type"]
        return (
            f"{indent}{element} = extractelement <{match['lanes']} x {type_}> {match['value']}, i64 {lane}\n"
            f"{indent}{element}.place = getelementptr inbounds {type_}, ptr {match['pointer']}, i64 {lane}\n"
            f"{indent}store {type_} {element}, ptr {element}.place, align {_bytes(type_)}"
        )

    return _MASKED_STORE.sub(plain, ir) if "@llvm.masked.store." in ir else ir


def _bytes(type_: str) -> int:
    """Alignment of an element; 1 where the type's name does not say."""
    sizes = {"half": 2, "float": 4, "double": 8, "i16": 2, "i32": 4, "i64": 8}
    return sizes.get(type_, 1)
