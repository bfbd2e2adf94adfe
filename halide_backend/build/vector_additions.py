"""Additions to adjacent numbers in memory, joined to one instruction that adds a vector of two.

Halide has no such store. A kernel marks the addends of whole, aligned vectors, whose additions then follow one another
in the PTX, at adjacent offsets of one register.
"""

from __future__ import annotations

import re
from itertools import groupby

#: The instruction of a marked addend, as `build.ptx` writes it, and the words of the vector it becomes a part of.
MARKED, _WORDS = "red.global.add.f32_in_vector", 2

#: The first compute capability, and the version of PTX, with that instruction.
_CAPABILITY, _VERSION = 90, "8.1"

_ADDITION = re.compile(r"^\s*red\.global\.add\.f32_in_vector\s+\[(%\w+)(?:\+(-?\d+))?\], (%\w+);$")
_VERSION_LINE = re.compile(r"^\.version [\d.]+$", re.MULTILINE)
_TARGET_LINE = re.compile(r"^\.target sm_\d+", re.MULTILINE)


def with_vector_additions(ptx: str, capability: str) -> str:
    """`ptx` for `capability` ("sm_90") in which marked additions are done two at a time, where that can be."""
    if MARKED not in ptx:
        return ptx
    if int(capability.removeprefix("sm_")) < _CAPABILITY:
        return ptx.replace(MARKED, "red.global.add.f32")
    lines = ptx.split("\n")
    found = [(number, match) for number, line in enumerate(lines) if (match := _ADDITION.match(line))]
    for _, run in groupby(enumerate(found), key=lambda item: item[1][1][1]):
        _join(lines, [addition for _, addition in run])
    text = "\n".join(lines).replace(MARKED, "red.global.add.f32")
    return _TARGET_LINE.sub(f".target sm_{_CAPABILITY}", _VERSION_LINE.sub(f".version {_VERSION}", text))


def _join(lines: list[str], additions: list[tuple[int, re.Match[str]]]) -> None:
    """Replace whole vectors of the `additions`, (line, match) pairs with one base register, by one instruction each."""
    while len(additions) >= _WORDS:
        vector, additions = additions[:_WORDS], additions[_WORDS:]
        offsets = [int(match[2] or 0) for _, match in vector]
        first, last = vector[0][0], vector[-1][0]
        straight = not any(line.lstrip().startswith(("$L", "bra", "@")) for line in lines[first:last])
        if straight and offsets == [offsets[0] + 4 * k for k in range(_WORDS)]:
            values = ", ".join(match[3] for _, match in vector)
            place = f"{vector[0][1][1]}+{offsets[0]}"
            for number, _ in vector:
                lines[number] = ""
            lines[last] = f"\tred.relaxed.gpu.global.add.v{_WORDS}.f32 \t[{place}], {{{values}}};"
