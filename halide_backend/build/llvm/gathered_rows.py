"""Elements that are gathered from one row: found from the row's first element on, not from the buffer's.

An index that is clamped to a row is not negative and takes no instruction to be widened. Where the row is added to it,
LLVM adds in 32 bits, and then widens each element's sum by itself.
"""

from __future__ import annotations

import re

from halide_backend.build.llvm.gathers import DEFINITION, PLACE, Gather, gathers, index_of, may_gather
from halide_backend.build.llvm.ir_syntax import FUNCTION

#: What is in [0, 2**31).
_NOT_NEGATIVE = re.compile(r"trunc nuw nsw <\d+ x i64> ")


def with_gathered_rows(ir: str) -> str:
    """LLVM IR that computes the same, and adds what all elements of a gather share to its base."""
    if "trunc nuw nsw" not in ir:
        return ir
    number = 0

    def in_function(function: re.Match[str]) -> str:
        nonlocal number
        if "trunc nuw nsw" not in function[0] or not may_gather(function[0]):
            return function[0]
        lines = function[0].split("\n")
        definitions = {found["result"]: found["value"] for line in lines if (found := DEFINITION.match(line))}
        rows: dict[str, tuple[str, Gather]] = {}
        for _, gather in gathers(lines):
            narrow = gather.index_type == "i32" and not gather.constants
            if narrow and gather.shifts and _NOT_NEGATIVE.match(definitions.get(gather.distances, "")):
                rows |= dict.fromkeys(gather.parts, (f"%row{number}", gather))
                number += 1
        written: list[str] = []
        begun: set[str] = set()
        for line in lines:
            found = DEFINITION.match(line)
            part = rows.get(found["result"]) if found and PLACE.match(found["value"]) else None
            if not (found and part):
                written.append(line)
                continue
            row, gather = part
            if row not in begun:
                begun.add(row)
                written += _begin(row, gather)
            lane, name = index_of(definitions, found["value"]), f"{row}.{found['result'][1:]}"
            written += [
                f"  {name}.lane = extractelement <{gather.lanes} x i32> {gather.distances}, i64 {lane}",
                f"  {name}.index = zext nneg i32 {name}.lane to i64",
                f"  {found['result']} = getelementptr inbounds {gather.type}, ptr {row}, i64 {name}.index",
            ]
        return "\n".join(written)

    return FUNCTION.sub(in_function, ir)


def _begin(row: str, gather: Gather) -> list[str]:
    """The lines that compute where the row begins."""
    lines, base = [], gather.base
    for step, (operator, one) in enumerate(gather.shifts):
        wide, last = f"{row}.shift{step}", step == len(gather.shifts) - 1
        place = row if last else f"{row}.base{step}"
        lines.append(f"  {wide} = sext i32 {one} to i64")
        if operator == "sub":
            lines.append(f"  {wide}.less = sub i64 0, {wide}")
            wide += ".less"
        lines.append(f"  {place} = getelementptr {gather.type}, ptr {base}, i64 {wide}")
        base = place
    return lines
