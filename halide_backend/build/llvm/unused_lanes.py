"""A way around a fault in Halide: no load begins before the first element that is used.

Where the indices of a vector are one number plus constants, Halide loads all elements from the least of them on, and
puts them in order with a shuffle. For the least it takes a lower bound (`FlattenNestedRamps.cpp` of Halide 21), which
is too low where a row is reflected or its end repeated: the first vector of a row that begins with 3 reflected elements
is read from 3 elements before the row on, and that of the first row from memory that may not be there.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME

_LOAD = re.compile(
    rf"^ *(?P<result>{NAME}) = load <(?P<lanes>\d+) x (?P<type>\w+)>, ptr (?P<pointer>{NAME}), (?P<notes>align .*)$"
)
_SHUFFLE = re.compile(
    rf"^ *(?P<result>{NAME}) = shufflevector <(?P<lanes>\d+) x \w+> (?P<first>{NAME}|[^%]+), <\d+ x \w+> "
    rf"(?P<second>{NAME}|[^%]+), <\d+ x i32> (?P<mask><[^>]*>|zeroinitializer|poison)$"
)
#: Another element in place of a lane, as the zero that a padded row begins with.
_INSERT = re.compile(
    rf"^ *(?P<result>{NAME}) = insertelement <(?P<lanes>\d+) x \w+> (?P<vector>{NAME}), (?P<element>.*), i\d+ "
    r"(?P<lane>\d+)$"
)
#: What computes each lane from the same lane of its operands: LLVM does so before a shuffle that it finds behind it.
_EACH_LANE = re.compile(
    rf"^ *(?P<result>{NAME}) = (?:f(?:add|sub|mul|div|neg)|add|sub|mul|and|or|xor|shl|[al]shr|[sz]ext|trunc|fpext"
    r"|fptrunc|[us]itofp|fpto[us]i|bitcast|select|[if]cmp|freeze) [^\n]*?<(?P<lanes>\d+) x "
)
_LANES = re.compile(r"<(\d+) x ")
_NAMES = re.compile(NAME)
_POISON = "poison"

#: The instructions that leave lanes out.
_LEAVING_OUT = (" = shufflevector ", " = insertelement ")


def without_unused_lanes(ir: str) -> str:
    """LLVM IR that computes the same, in which no vector is loaded whose first lanes nothing uses.

    A strided vector is loaded with what lies between its elements, before the first of them as well if another one is
    known to lie there: as many lanes as that are left.
    """
    number = 0

    def in_function(function: re.Match[str]) -> str:
        nonlocal number
        text = function[0]
        if " = load <" not in text or not any(word in text for word in _LEAVING_OUT):
            return text
        lines = text.split("\n")
        loads = {place: found for place, line in enumerate(lines) if (found := _LOAD.match(line))}
        used_of = _used_lanes(lines) if loads else {}
        for place, load in loads.items():
            used = sorted(used_of.get(load["result"], range(int(load["lanes"]))))
            if used and used[0] >= max(1, math.gcd(*(lane - used[0] for lane in used))):
                lines[place] = "\n".join(_from(used[0], load, f"%used{number}"))
                number += 1
        return "\n".join(lines)

    return FUNCTION.sub(in_function, ir)


def _used_lanes(lines: Sequence[str]) -> dict[str, set[int]]:
    """For each vector of a function, its lanes that are used; without those of which all may be.

    From the last line to the first, since an instruction uses of its operands what is used of its result.
    """
    found: dict[str, set[int]] = {}
    whole = _read_before(lines)
    for line in reversed(lines):
        result, _, rest = line.partition(" = ")
        name = result.strip()
        kept = None if name in whole else found.get(name, set())
        if shuffle := _SHUFFLE.match(line):
            sources, lanes = _mask(shuffle["mask"], line), int(shuffle["lanes"])
            for end, less in (("first", 0), ("second", lanes)):
                of_end = {source - less for lane, source in enumerate(sources) if kept is None or lane in kept}
                found.setdefault(shuffle[end], set()).update(of_end.intersection(range(lanes)))
        elif insert := _INSERT.match(line):
            others = (set(range(int(insert["lanes"]))) if kept is None else kept) - {int(insert["lane"])}
            found.setdefault(insert["vector"], set()).update(others)
            whole.update(_NAMES.findall(insert["element"]))
        elif kept is not None and _EACH_LANE.match(line) and len(set(_LANES.findall(line))) == 1:
            for operand in _NAMES.findall(rest):
                found.setdefault(operand, set()).update(kept)
        else:
            whole.update(_NAMES.findall(rest or line))
    return {name: lanes for name, lanes in found.items() if name not in whole}


def _read_before(lines: Sequence[str]) -> set[str]:
    """The names that a line reads which comes before the one that defines them: of another iteration of a loop, or of
    a block that LLVM has put behind one that it goes to."""
    places = {line.partition(" = ")[0].strip(): place for place, line in enumerate(lines) if " = " in line}
    uses = ((place, name) for place, line in enumerate(lines) for name in _NAMES.findall(line.partition(" = ")[2]))
    return {name for place, name in uses if places.get(name, -1) > place}


def _mask(text: str, line: str) -> list[int]:
    """The lane of both operands that each lane of a shuffle is, -1 for none."""
    if not text.startswith("<"):
        count = int(_LANES.findall(line)[-1])
        return [-1 if text == _POISON else 0] * count
    return [-1 if each.endswith(_POISON) else int(each.split()[-1]) for each in text[1:-1].split(", ")]


def _from(first: int, load: re.Match[str], name: str) -> list[str]:
    """The lines that load the lanes from `first` on, in two vectors that overlap, as the vector that `load` is."""
    lanes, type_ = int(load["lanes"]), load["type"]
    count = lanes - first
    half = 1 << (count - 1).bit_length() - 1 if count > 1 else 1
    piece = f"<{half} x {type_}>"
    # The lanes that are not used repeat the first one that is.
    kept = (max(0, lane - first) for lane in range(lanes))
    order = ", ".join(f"i32 {lane if lane < half else lane - count + 2 * half}" for lane in kept)
    return [
        f"  {name}.p = getelementptr {type_}, ptr {load['pointer']}, i64 {first}",
        f"  {name}.q = getelementptr {type_}, ptr {load['pointer']}, i64 {lanes - half}",
        f"  {name}.low = load {piece}, ptr {name}.p, {load['notes']}",
        f"  {name}.high = load {piece}, ptr {name}.q, {load['notes']}",
        f"  {load['result']} = shufflevector {piece} {name}.low, {piece} {name}.high, <{lanes} x i32> <{order}>",
    ]
