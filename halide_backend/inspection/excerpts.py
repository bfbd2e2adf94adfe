"""Excerpts of assembly language and PTX, chosen by what the instructions are."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"^\tj\w+\t(\.L\w+)$")


def inner_loops(assembly: str) -> list[list[str]]:
    """The innermost loops of x86-64 assembly in AT&T syntax, each from its label to the jump back to it."""
    lines = [line.rstrip() for line in assembly.splitlines()]
    loops: list[tuple[int, int]] = []
    labels: dict[str, int] = {}
    for number, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = number
        elif (jump := _JUMP.match(line)) and jump[1] in labels:
            start = labels[jump[1]]
            # A loop around another one starts before it, and its jump comes later.
            if not any(start <= inner for inner, _ in loops):
                loops.append((start, number))
    return [lines[start : end + 1] for start, end in loops]


def instructions(ptx: str) -> list[str]:
    """The instructions of the first kernel of a PTX module, in order, one a line, without directives and comments."""
    body = ptx.partition(".entry")[2].partition("\n{\n")[2].partition("\n}")[0]
    found = (line.partition("//")[0].strip() for line in body.splitlines())
    return [line for line in found if line and not line.startswith((".", "$"))]


def excerpt(lines: Sequence[str], ranges: Sequence[range], comment: str) -> list[str]:
    """The lines in `ranges`, ascending and disjoint, with a `comment` that counts what is left out between them."""
    shown: list[str] = []
    end = ranges[0].start if ranges else 0
    for kept in ranges:
        if kept.start > end:
            shown.append(f"{comment} {kept.start - end} more")
        shown += lines[kept.start : kept.stop]
        end = kept.stop
    return shown


def ptx_excerpt(ptx: str) -> list[str]:
    """What a kernel over rows in registers does: loads, the first exchange and exponential, a reciprocal, a store.

    Raises:
        ValueError: it has none of these.
    """
    lines = instructions(ptx)

    def first(opcode: str, after: int = 0) -> int:
        found = [number for number, line in enumerate(lines) if number >= after and line.startswith(opcode)]
        if not found:
            raise ValueError(f"no {opcode} in the PTX")
        return found[0]

    loads, exchange, exponential = first("ld.global"), first("shfl.sync"), first("ex2.approx")
    again = first("shfl.sync", exponential)
    reciprocal, store = first("rcp.approx"), first("st.global")
    parts = [(loads, exchange + 4), (exponential - 2, exponential + 2), (again - 1, again + 2)]
    parts += [(reciprocal, reciprocal + 2), (store - 1, store + 1)]
    return excerpt(lines, [range(*part) for part in parts], "//")
