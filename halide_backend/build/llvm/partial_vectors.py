"""Stores of some lanes of a vector on the stack become whole ones, so that LLVM can keep the vector in a register.

Where the length of a row is no multiple of the vector, Halide adds its last elements to some lanes of an accumulator
with `llvm.masked.store`, and a single last element to the first lane. LLVM's SROA leaves such memory on the stack, and
a load that follows, of another width, cannot be forwarded from the store: it waits until the cache has the data, once
for each iteration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME, lines_with

_ALLOCA = re.compile(rf"^ *({NAME}) = alloca \[(\d+) x (\w+)\]", re.MULTILINE)
_PLACE = re.compile(rf"^ *({NAME}) = getelementptr (?:\w+ )*i8, ptr ({NAME}), i64 (\d+)$", re.MULTILINE)
_MASKED_STORE = re.compile(
    r"^(?P<indent> *)(?:tail )?call void @llvm\.masked\.store\.[\w.]+\("
    rf"<(?P<lanes>\d+) x (?P<type>\w+)> (?P<value><[^>]*>|[^,]+), "
    rf"ptr (?:\w+ )*(?P<pointer>{NAME}), i32 (?P<align>\d+), "
    rf"<\d+ x i1> (?P<mask><[^>]*>|{NAME}|zeroinitializer)\)[^\n]*$",
    re.MULTILINE,
)
_VECTOR_STORE = re.compile(rf"^ *store <(\d+) x (\w+)> [^\n]*, ptr ({NAME}), align", re.MULTILINE)
_ELEMENT_STORE = re.compile(
    rf"^(?P<indent> *)store (?P<type>half|float|double|i\d+) (?P<value>[^,\n]+), ptr (?P<pointer>{NAME}), "
    r"align (?P<align>\d+)[^\n]*$",
    re.MULTILINE,
)
_ANY_PLACE = re.compile(rf"^ *({NAME}) = getelementptr [^\n]*?, ptr ({NAME})[,\n]", re.MULTILINE)
_NAMES = re.compile(NAME)
#: What makes a place, or loads from one.
_NO_STORE = re.compile(rf" *{NAME} = (?:alloca|getelementptr|load|(?:tail )?call <[^@\n]*@llvm\.masked\.load\.)")
#: A line that may write to memory, or begins a basic block.
_MAY_STORE = re.compile(r" *store |.*\bcall |[^ \n][^\n]*:")
_BYTES = {"half": 2, "float": 4, "double": 8, "i8": 1, "i16": 2, "i32": 4, "i64": 8}


def with_whole_stores(ir: str) -> tuple[str, bool]:
    """LLVM IR in which every store of some lanes that provably lies within a vector on the stack stores all of them,
    and whether there was one.

    What lies there is loaded, and kept in the lanes that are not stored, unless nothing is ever stored there. That is
    the same to the one thread which can see the array. A single element is part of a vector if its address is a vector
    store's, too.
    """
    number = 0

    def in_function(function: re.Match[str]) -> str:
        text = function[0]
        sizes = {
            name: int(count) * _BYTES.get(type_, 0)
            for name, count, type_ in _ALLOCA.findall(lines_with(text, " = alloca "))
        }
        if not sizes:
            return text
        places = _PLACE.findall(lines_with(text, " = getelementptr "))
        room = sizes | {name: sizes[array] - int(offset) for name, array, offset in places if array in sizes}
        stores = _VECTOR_STORE.findall(lines_with(text, " store <"))
        vectors = {(place, type_): int(lanes) for lanes, type_, place in stores if place in room}

        def whole(match: re.Match[str], lanes: int, part: str) -> str:
            nonlocal number
            if room.get(match["pointer"], 0) < lanes * _BYTES.get(match["type"], 1 << 30):
                return match[0]
            number += 1
            vector = f"<{lanes} x {match['type']}>"
            old, new = f"%partial.{number}.old", f"%partial.{number}.new"
            place = f"ptr {match['pointer']}, align {match['align']}"
            return (
                f"{match['indent']}{old} = load {vector}, {place}\n"
                f"{match['indent']}{new} = {part.replace('OLD', f'{vector} {old}')}\n"
                f"{match['indent']}store {vector} {new}, {place}"
            )

        is_masked = "@llvm.masked.store." in text
        alone = _stored_alone(text, sizes) if is_masked else frozenset()

        def masked(match: re.Match[str]) -> str:
            nonlocal number
            lanes, vector = match["lanes"], f"<{match['lanes']} x {match['type']}>"
            if match["pointer"] in alone and sizes[match["pointer"]] == int(lanes) * _BYTES.get(match["type"], 0):
                # What is left on the stack there may be denormal, for which a quotient takes a hundred cycles.
                number += 1
                return (
                    f"{match['indent']}store {vector} {match['value']}, ptr {match['pointer']}, align {match['align']}"
                )
            part = f"select <{lanes} x i1> {match['mask']}, {vector} {match['value']}, OLD"
            return whole(match, int(lanes), part)

        def element(match: re.Match[str]) -> str:
            lanes = vectors.get((match["pointer"], match["type"]), 0)
            part = f"insertelement OLD, {match['type']} {match['value']}, i64 0"
            return whole(match, lanes, part.replace("OLD", _just_stored(match, lanes) or "OLD")) if lanes else match[0]

        text = _MASKED_STORE.sub(masked, text) if is_masked else text
        return _ELEMENT_STORE.sub(element, text) if vectors else text

    return FUNCTION.sub(in_function, ir), number > 0


def _stored_alone(text: str, arrays: Iterable[str]) -> frozenset[str]:
    """Those of `arrays` to which the same lanes are stored each time, all else that becomes of them being loads."""
    array_of, found = {name: name for name in arrays}, _ANY_PLACE.findall(lines_with(text, " = getelementptr "))
    while new := {place: array_of[base] for place, base in found if base in array_of and place not in array_of}:
        array_of |= new
    masked = {array_of.get(match["pointer"]) for match in _MASKED_STORE.finditer(text)}
    array_of = {name: array for name, array in array_of.items() if array in masked}
    lanes: dict[str, set[str]] = {}
    for line in text.splitlines() if array_of else ():
        for name in set(_NAMES.findall(line)) & array_of.keys():
            stored = _MASKED_STORE.match(line)
            if stored and stored["pointer"] == name:
                lanes.setdefault(array_of[name], set()).add(f"{name} {stored['mask']}")
            elif not _NO_STORE.match(line):
                lanes.setdefault(array_of[name], set()).update(("any", "lanes"))
    return frozenset(name for name, each in lanes.items() if len(each) == 1)


def _just_stored(match: re.Match[str], lanes: int) -> str:
    """The vector that was stored last before `match`, with its type, if that was there and in the same basic block.

    LLVM's code generator would narrow the store of a vector that is loaded and differs in one lane to that lane again.
    """
    for line in reversed(match.string[: match.start()].splitlines()):
        if _MAY_STORE.match(line):
            stored = re.match(
                rf" *store (<{lanes} x {match['type']}> [^\n]+), ptr {re.escape(match['pointer'])}, ", line
            )
            return stored[1] if stored else ""
    return ""
