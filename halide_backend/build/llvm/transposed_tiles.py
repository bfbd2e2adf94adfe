"""Transpositions of a square tile in registers, written again in the order of instructions that processors have.

A tile is transposed by perfect shuffles (`kernel_library.memory.transposed`), whose vectors Halide keeps on the stack.
LLVM's SROA moves them to registers and cuts them into halves and quarters on the way: for AVX-512, the 64 shuffles of
16 x 16 float32 become about 150. Here every shuffle is traced to the elements that it moves. Where vectors turn out to
be the columns of other ones, they are computed anew: first within 128 bits by interleaving instructions (`vunpcklps`,
`vpunpcklwd`), then in whole pieces of 128 bits (`vshuff64x2`, `vperm2f128`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from halide_backend.build.llvm.ir_syntax import FUNCTION, NAME

_SHUFFLE = re.compile(
    rf"^ *(?P<result>{NAME}) = shufflevector <(?P<lanes>\d+) x (?P<type>\w+)> (?P<first>[^ ,]+), "
    r"<\d+ x \w+> (?P<second>[^ ,]+), <(?P<width>\d+) x i32> (?P<mask><[^>]*>|zeroinitializer|poison|undef)"
)
_ANY_NAME = re.compile(NAME)
_LABEL = re.compile(r'^(?:[-\w.$]+|"[^"]*"):')
_BITS = {"i8": 8, "half": 16, "bfloat": 16, "i16": 16, "float": 32, "i32": 32, "double": 64, "i64": 64}

#: Within so many bits elements are moved by the interleaving instructions.
_LANE_BITS = 128

#: Fewer elements a side are no tile.
_SIDE_LEAST = 4

#: The vector and the lane that an element comes from; None where it may be anything.
_Element = tuple[str, int] | None


@dataclass(frozen=True)
class _Column:
    """The vector `name` of elements of `type`, defined in line `line` of the basic block number `block`: it has element
    `number` of each of the vectors `rows`."""

    name: str
    type: str
    line: int
    block: int
    rows: tuple[str, ...]
    number: int


def with_direct_transpositions(ir: str) -> str:
    """LLVM IR that computes the same, with the fewest shuffles for every square tile that is transposed.

    The shuffles that were there stay, without a use: unnamed values of LLVM IR are numbered in order.
    """
    number = 0

    def in_function(function: re.Match[str]) -> str:
        nonlocal number
        lines = function[0].split("\n")
        networks: dict[int, list[str]] = {}
        names: dict[str, str] = {}
        for tile in _tiles(_columns(lines)):
            number += 1
            columns, shuffles = _network(tile, f"%tile.{number}")
            # A column is made of all rows, so that they are there where the first one is.
            networks[min(column.line for column in tile)] = shuffles
            names |= {column.name: name for column, name in zip(tile, columns, strict=True)}
        if not networks:
            return function[0]
        written: list[str] = []
        for place, line in enumerate(lines):
            written += networks.get(place, ())
            result, equals, rest = line.partition(" = ")
            renamed = _ANY_NAME.sub(lambda name: names.get(name[0], name[0]), rest if equals else line)
            written.append(f"{result}{equals}{renamed}" if equals else renamed)
        return "\n".join(written)

    return FUNCTION.sub(in_function, ir) if "shufflevector" in ir else ir


def _columns(lines: list[str]) -> Iterator[_Column]:
    """Every shuffle that has one element of each of several vectors, under the same number in all of them."""
    elements: dict[str, list[_Element]] = {}
    row_lanes: dict[str, int] = {}  # of vectors that are no shuffle's result

    def of(name: str, lanes: int) -> list[_Element]:
        if name in ("poison", "undef"):
            return [None] * lanes
        if name in elements:
            return elements[name]
        row_lanes[name] = lanes
        return [(name, lane) for lane in range(lanes)]

    block = 0
    for line, text in enumerate(lines):
        if not text.startswith(" "):  # no instruction
            block += bool(_LABEL.match(text))
            continue
        if "shufflevector" not in text or not (match := _SHUFFLE.match(text)):
            continue
        lanes, width = int(match["lanes"]), int(match["width"])
        operands = of(match["first"], lanes) + of(match["second"], lanes)
        mask = [lane[4:] for lane in match["mask"][1:-1].split(", ")] if match["mask"][0] == "<" else ["0"] * width
        moved = [operands[int(lane)] if lane.isdecimal() else None for lane in mask]
        elements[match["result"]] = moved
        if width < _SIDE_LEAST:
            continue
        known = [element for element in moved if element is not None]
        rows, numbers = tuple(name for name, _ in known), {number for _, number in known}
        is_square = len(set(rows)) == width and all(row_lanes[row] == width for row in rows)
        if is_square and width >= _SIDE_LEAST and len(numbers) == 1 and match["type"] in _BITS:
            yield _Column(match["result"], match["type"], line, block, rows, numbers.pop())


def _tiles(columns: Iterator[_Column]) -> Iterator[list[_Column]]:
    """All columns of the same rows, in order."""
    found: dict[tuple[int, str, tuple[str, ...]], dict[int, _Column]] = {}
    for column in columns:
        found.setdefault((column.block, column.type, column.rows), {}).setdefault(column.number, column)
    for (_, type_, rows), tile in found.items():
        side = len(rows)
        if sorted(tile) == list(range(side)) and side & (side - 1) == 0 and side * _BITS[type_] >= _LANE_BITS:
            yield [tile[number] for number in range(side)]


def _network(tile: list[_Column], stem: str) -> tuple[list[str], list[str]]:
    """The names of the columns of `tile`, and the shuffles that make them of its rows: in log2(side) steps each
    is combined with the one at some distance."""
    side, bits = len(tile), _BITS[tile[0].type]
    lane = _LANE_BITS // bits
    vector = f"<{side} x {tile[0].type}>"
    vectors, shuffles = list(tile[0].rows), []
    distance = 1
    while distance < side:
        masks = _interleaved(side, lane, distance) if distance < lane else _alternate(side, lane)
        for row in range(side):
            if row & distance:
                continue
            pair = f"{vector} {vectors[row]}, {vector} {vectors[row + distance]}"
            for place, mask in zip((row, row + distance), masks):
                vectors[place] = f"{stem}.{distance}.{place}"
                numbers = ", ".join(f"i32 {number}" for number in mask)
                shuffles.append(f"  {vectors[place]} = shufflevector {pair}, <{side} x i32> <{numbers}>")
        distance *= 2
    # Each step of interleaving takes the lower or the upper half of a lane: the last one decides on bit 0 of a column.
    digits = lane.bit_length() - 1
    reverse = [int(format(place, f"0{digits}b")[::-1], 2) for place in range(lane)]
    return [vectors[column // lane * lane + reverse[column % lane]] for column in range(side)], shuffles


def _interleaved(side: int, lane: int, width: int) -> tuple[list[int], list[int]]:
    """Masks that take `width` elements of two vectors in turns: of all lanes' lower halves, and of their upper ones."""
    places = [range(first, first + width) for first in range(0, lane, width)]
    half = len(places) // 2

    def mask(chosen: list[range]) -> list[int]:
        return [
            start + vector + place
            for start in range(0, side, lane)
            for each in chosen
            for vector in (0, side)
            for place in each
        ]

    return mask(places[:half]), mask(places[half:])


def _alternate(side: int, lane: int) -> tuple[list[int], list[int]]:
    """Masks that take every other lane of two vectors, from the first one on, and from the second one on."""
    numbers = range(2 * side)
    return [n for n in numbers if not n & lane], [n for n in numbers if n & lane]
