"""Masked stores into a vector on the stack become whole ones, so that LLVM can keep the vector in a register.

Where the length of a row is no multiple of the vector, Halide adds its last elements to some lanes of an accumulator
with `llvm.masked.store`. LLVM's SROA leaves such memory on the stack, and a load that follows, of another width, cannot
be forwarded from the store: it waits until the cache has the data, once for each iteration.
"""

from __future__ import annotations

import re

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME

_ALLOCA = re.compile(rf"^ *({NAME}) = alloca \[(\d+) x (\w+)\]", re.MULTILINE)
_PLACE = re.compile(rf"^ *({NAME}) = getelementptr (?:\w+ )*i8, ptr ({NAME}), i64 (\d+)$", re.MULTILINE)
_MASKED_STORE = re.compile(
    r"^(?P<indent> *)(?:tail )?call void @llvm\.masked\.store\.[\w.]+\("
    rf"<(?P<lanes>\d+) x (?P<type>\w+)> (?P<value><[^>]*>|[^,]+), "
    rf"ptr (?:\w+ )*(?P<pointer>{NAME}), i32 (?P<align>\d+), "
    rf"<\d+ x i1> (?P<mask><[^>]*>|{NAME}|zeroinitializer)\)[^\n]*$",
    re.MULTILINE,
)
_BYTES = {"half": 2, "float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


def with_whole_stores(ir: str) -> tuple[str, bool]:
    """LLVM IR in which every masked store that provably lies within an array on the stack stores all lanes, and whether
    there was one.

    What lies there is loaded, and kept in the lanes that are masked out. That is the same to the one thread which can
    see the array.
    """
    if "@llvm.masked.store." not in ir:
        return ir, False
    number = 0

    def in_function(function: re.Match[str]) -> str:
        nonlocal number
        text = function[0]
        sizes = {name: int(count) * _BYTES.get(type_, 0) for name, count, type_ in _ALLOCA.findall(text)}
        room = sizes | {
            name: sizes[array] - int(offset) for name, array, offset in _PLACE.findall(text) if array in sizes
        }

        def whole(match: re.Match[str]) -> str:
            nonlocal number
            if room.get(match["pointer"], 0) < int(match["lanes"]) * _BYTES.get(match["type"], 1 << 30):
                return match[0]
            number += 1
            vector, lanes = f"<{match['lanes']} x {match['type']}>", f"<{match['lanes']} x i1>"
            old, new = f"%partial.{number}.old", f"%partial.{number}.new"
            place = f"ptr {match['pointer']}, align {match['align']}"
            return (
                f"{match['indent']}{old} = load {vector}, {place}\n"
                f"{match['indent']}{new} = select {lanes} {match['mask']}, {vector} {match['value']}, {vector} {old}\n"
                f"{match['indent']}store {vector} {new}, {place}"
            )

        return _MASKED_STORE.sub(whole, text)

    return FUNCTION.sub(in_function, ir), number > 0
