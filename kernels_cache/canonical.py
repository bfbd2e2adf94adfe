"""Plain data in, one canonical JSON text out: equal data gives equal bytes in every process.

Used for keys and manifests. Only exact JSON types pass, so no value can print itself
differently in another process (sets, enums, NumPy scalars, symbolic integers, addresses).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Union

Json = Union[None, bool, int, float, str, "list[Json]", "dict[str, Json]"]

# Deep enough for any schedule, and far from the recursion limit of json's C encoder.
DEPTH_LIMIT = 64
# What every JSON reader can hold; larger numbers belong in a string.
INTEGER_LIMIT = 2**64


class NotPlain(ValueError):
    """A value that has no canonical JSON form; `place` is its dotted path."""

    def __init__(self, place: str, reason: str) -> None:
        super().__init__(place, reason)
        self.place = place
        self.reason = reason


def plain(value: object, place: str = "", depth: int = 0) -> Json:
    """Copy `value` into plain lists and dicts.

    Raises:
        NotPlain: at the first value that is not exactly a JSON type.
    """
    if depth > DEPTH_LIMIT:
        raise NotPlain(place, f"nested deeper than {DEPTH_LIMIT}")
    if value is None or type(value) is bool or type(value) is str:
        return value
    if type(value) is int:
        if not -INTEGER_LIMIT < value < INTEGER_LIMIT:
            raise NotPlain(place, "an integer beyond 64 bits")
        return value
    if type(value) is float:
        if not math.isfinite(value):
            raise NotPlain(place, f"the float {value!r}, which JSON cannot hold")
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{place}[{at}]", depth + 1) for at, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _plain_mapping(value, place, depth)
    raise NotPlain(place, f"a {type(value).__module__}.{type(value).__qualname__}")


def _plain_mapping(value: Mapping[object, object], place: str, depth: int) -> dict[str, Json]:
    copy: dict[str, Json] = {}
    for name, item in value.items():
        if type(name) is not str:
            raise NotPlain(place, f"the name {name!r}, which is not a string")
        copy[name] = plain(item, f"{place}.{name}" if place else name, depth + 1)
    return copy


def printable(text: str) -> str:
    """Return a name from an entry as JSON writes it: no control character reaches a terminal."""
    return dumps(text)[1:-1]


def dumps(value: Json) -> str:
    """Return the canonical text of plain data: sorted names, no blanks, ASCII only."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
