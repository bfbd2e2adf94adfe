"""Vectors that are loaded element by element, as Halide loads those with an index that is no plain step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from halide_backend.build.llvm.ir_syntax import NAME

DEFINITION = re.compile(rf"^ *(?P<result>{NAME}) = (?P<value>.*)$")
LABEL = re.compile(r'^(?P<name>[-\w.$]+|"[^"]*"):')
_INSERTED = re.compile(
    rf"insertelement <(?P<lanes>\d+) x (?P<type>\w+)> (?P<rest>poison|undef|{NAME}), \w+ (?P<element>{NAME}), "
    r"i64 (?P<lane>\d+)$"
)
#: The same of a whole text, as far as it says whether the last lane is inserted.
_LANE_INSERTED = re.compile(r" = insertelement <(\d+) x \w+> .*, i64 (\d+)$", re.MULTILINE)
_LOADED = re.compile(rf"load \w+, ptr (?P<pointer>{NAME}), (?P<notes>align \d+.*)$")
#: The address of an element.
PLACE = re.compile(
    rf"getelementptr (?:inbounds )?(?:nuw )?(?P<type>\w+), ptr (?P<base>{NAME}), i64 (?P<offset>{NAME})$"
)
_WIDENED = re.compile(rf"(?:sext|zext nneg) i32 (?P<narrow>{NAME}) to i64$")
_INDEX = re.compile(rf"extractelement <(?P<lanes>\d+) x (?P<type>i32|i64)> (?P<indices>{NAME}), i64 (?P<lane>\d+)$")
_CONSTANTS = re.compile(rf"add (?:nuw )?(?:nsw )?<\d+ x (?:i32|i64)> (?P<alike>{NAME}), <(?P<constants>[-\di, ]+)>$")
_ALIKE = re.compile(
    rf"shufflevector <\d+ x \w+> (?P<first>{NAME}), <\d+ x \w+> (?:poison|undef), <\d+ x i32> zeroinitializer$"
)
_FIRST = re.compile(rf"insertelement <\d+ x \w+> (?:poison|undef|{NAME}), \w+ (?P<one>{NAME}|-?\d+), i64 0$")
_NUMBER = re.compile(r"splat \(i\d+ (-?\d+)\)$")
_SUM = re.compile(
    r"(?P<operator>add|sub|or disjoint) (?:nuw )?(?:nsw )?<\d+ x (?:i32|i64)> "
    rf"(?P<left>{NAME}), (?P<right>{NAME}|splat \(i\d+ -?\d+\))$"
)

#: What may write to memory.
_EFFECT = re.compile(r"^ *(?:store|(?:\w+ )?call void|fence|atomicrmw|cmpxchg)\b|= (?:\w+ )?call [^@]*@(?!llvm\.)")

_BITS = {"i8": 8, "i16": 16, "half": 16, "bfloat": 16, "i32": 32, "float": 32, "i64": 64, "double": 64}


@dataclass(frozen=True)
class Gather:
    """The vector `result` of `lanes` elements of `type`: those at `indices` from `base` on."""

    result: str
    lanes: int
    type: str
    base: str
    indices: str
    index_type: str
    #: What its loads say of their alignment and of aliases.
    notes: str
    #: The values that it is made of.
    parts: frozenset[str]
    #: What is added to an index that all elements share, if that is known.
    constants: tuple[int, ...]
    #: Indices that are as far from each other, and what "add" and "sub" make those of the gather of all of them.
    distances: str
    shifts: tuple[tuple[str, str], ...]

    @property
    def bits(self) -> int:
        """Of an element."""
        return _BITS[self.type]


def may_gather(function: str) -> bool:
    """Whether a function completes a vector element by element, without which it has no gathers."""
    return any(int(lane) == int(lanes) - 1 for lanes, lane in _LANE_INSERTED.findall(function))


def gathers(lines: list[str]) -> Iterator[tuple[int, Gather]]:
    """The gathers of the function with these lines, by the line that completes each."""
    definitions: dict[str, tuple[int, str]] = {}
    barrier = 0
    for place, line in enumerate(lines):
        if LABEL.match(line) or _EFFECT.search(line):
            barrier = place
        found = DEFINITION.match(line)
        if not found:
            continue
        definitions[found["result"]] = (place, found["value"])
        last = _INSERTED.match(found["value"])
        if last and int(last["lane"]) == int(last["lanes"]) - 1 and last["type"] in _BITS:
            gather = _gather(definitions, found["result"], barrier)
            if gather:
                yield place, gather


def _gather(definitions: Mapping[str, tuple[int, str]], result: str, barrier: int) -> Gather | None:
    """The gather that `result` is, if it is one, all of whose loads come after line `barrier`."""

    def matched(pattern: re.Pattern[str], name: str) -> re.Match[str] | None:
        return pattern.match(definitions[name][1]) if name in definitions else None

    sources: set[tuple[str, str, str, str, str]] = set()
    parts: set[str] = set()
    name, lane = result, -1
    while lane != 0:
        inserted = matched(_INSERTED, name)
        if not inserted or (lane > 0 and int(inserted["lane"]) != lane - 1):
            return None
        lane, lanes, element = int(inserted["lane"]), int(inserted["lanes"]), inserted["element"]
        loaded = matched(_LOADED, element)
        place = matched(PLACE, loaded["pointer"]) if loaded else None
        if not loaded or not place or definitions[element][0] <= barrier or place["type"] != inserted["type"]:
            return None
        widened = matched(_WIDENED, place["offset"])
        offset = widened["narrow"] if widened else place["offset"]
        index = matched(_INDEX, offset)
        if not index or int(index["lane"]) != lane or int(index["lanes"]) != lanes:
            return None
        sources.add((inserted["type"], place["base"], index["indices"], index["type"], loaded["notes"]))
        parts |= {name, element, loaded["pointer"], place["offset"], offset}
        name = inserted["rest"]
    if len(sources) != 1:
        return None
    ((type_, base, indices, index_type, notes),) = sources

    def alike(name: str) -> str:
        """The number that all elements of a vector are, "" if they are not known to be one."""
        if number := _NUMBER.match(name):
            return number[1]
        vector = matched(_ALIKE, name)
        first = matched(_FIRST, vector["first"]) if vector else None
        return first["one"] if first else ""

    distances, shifts = indices, []
    while sum_ := matched(_SUM, distances):
        if one := alike(sum_["right"]):
            distances = sum_["left"]
        elif one := alike(sum_["left"]) if sum_["operator"] != "sub" else "":
            distances = sum_["right"]
        else:
            break
        # A sum without carries.
        shifts.append(("sub" if sum_["operator"] == "sub" else "add", one))
    known = matched(_CONSTANTS, distances)
    words = known["constants"].split(",") if known and alike(known["alike"]) else []
    constants = tuple(int(word.split()[1]) for word in words)
    rest = frozenset(parts - {result})
    return Gather(result, lanes, type_, base, indices, index_type, notes, rest, constants, distances, tuple(shifts))


def index_of(definitions: Mapping[str, str], place: str) -> int:
    """The lane of the vector of indices that the address `place` of an element is made of."""
    offset = PLACE.match(place)
    assert offset
    widened = _WIDENED.match(definitions[offset["offset"]])
    index = _INDEX.match(definitions[widened["narrow"] if widened else offset["offset"]])
    assert index
    return int(index["lane"])


def widened(number: str, index_type: str) -> str:
    """The value of an index as an integer of 64 bits."""
    return f"sext i32 {number} to i64" if index_type == "i32" else f"bitcast i64 {number} to i64"
