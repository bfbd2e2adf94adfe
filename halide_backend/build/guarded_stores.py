"""Stores that take place in part, or not at all: Halide has no such thing where a region has to be a box.

A kernel marks what it stores (`algorithm.cuda.intrinsics.kept` and `begun`) by a call of a function that does not
exist. Here the store is found into which the marked value flows, and made to depend on what the mark says. The call
itself becomes a move elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from halide_backend.errors import HalideCompileError

KEPT, BEGUN = "halide_backend_kept_b", "halide_backend_begun_b"

#: What the compiler does with a value between the call and the store: it joins words to pairs, multiplies a word by
#: 2**32 + 1 to have it twice, and cuts bytes off.
_MOVES = ("and", "cvt", "mov", "mul", "or", "prmt", "shl")
_STORE = re.compile(
    r"\s*st\.global(?P<vector>\.v[24])?\.b(?P<bits>\d+)\s+\[(?P<place>[^\]]+)\], \{?(?P<values>[^;}]+)\}?;"
)
_REGISTER = re.compile(r"%[a-z]+\d+")


@dataclass(frozen=True)
class Mark:
    """`function` is KEPT or BEGUN with a number of bits, `operand` the second argument of its call into `result`."""

    function: str
    operand: str
    result: str


#: A mark and the number of the basic block that its call is in.
_Call: TypeAlias = tuple[Mark, int]


def with_guards(ptx: str, marks: Mapping[str, Mark], name: str) -> str:
    """`ptx` with the stores guarded of what flows out of the registers `marks`, whose names are unique in it.

    Raises:
        HalideCompileError: a marked value goes anywhere but into stores of its own.
    """
    if not marks:
        return ptx
    carriers: dict[str, frozenset[_Call]] = {}
    guarded: set[str] = set()
    lines = []
    block = 0
    for number, line in enumerate(ptx.split("\n")):
        block += line.startswith("$L")
        registers = _REGISTER.findall(line)
        carried = frozenset[_Call]().union(*(carriers.get(register, ()) for register in registers))
        if "[retval0]" in line and registers and registers[0] in marks:
            carriers[registers[0]] = frozenset([(marks[registers[0]], block)])
        elif carried:
            operation = line.split()[0].partition(".")[0]
            store = _STORE.match(line)
            if store:
                values = store["values"].replace(" ", "").split(",")
                if not all(value in carriers for value in values):
                    raise _unknown(name)
                line = _guarded(line, store, values, _chosen(carried, block, name), number)
                guarded.update(mark.result for mark, _ in carried)
            elif operation in _MOVES:
                carriers[registers[0]] = carried
            else:
                raise _unknown(name)
        lines.append(line)
    if guarded != set(marks):
        raise _unknown(name)
    return "\n".join(lines)


def _chosen(carried: frozenset[_Call], block: int, name: str) -> Mark:
    """The mark whose operand is known where the values are stored.

    All words of a store say the same. Where the compiler merged two branches some of them were marked in each, and
    only what was marked in the block of the store has its operand in a register on every way there.
    """
    here = {(mark.function, mark.operand): mark for mark, where in carried if where == block}
    anywhere = {(mark.function, mark.operand): mark for mark, _ in carried}
    for found in (here, anywhere):
        if len(found) == 1:
            return next(iter(found.values()))
    raise _unknown(name)


def _unknown(name: str) -> HalideCompileError:
    return HalideCompileError(
        "a value that is not always stored goes to an unknown place in the PTX",
        where=f"kernel {name}",
        cure="Please report it with the kernel's text.",
    )


def _guarded(line: str, store: re.Match[str], values: list[str], mark: Mark, number: int) -> str:
    if mark.function.startswith(KEPT):
        return (
            f"\t{{ .reg .b32 said; .reg .pred kept; mov.b32 said, {mark.operand}; setp.ne.b32 kept, said, 0;\n"
            f"\t@kept {line.strip()} }}"
        )
    bits, width = int(mark.function.removeprefix(BEGUN)), int(store["bits"])
    count = len(values) * width // bits
    text = [
        f"\t{{ .reg .b32 said; .reg .b{width} piece; .reg .b{max(bits, 16)} element; .reg .pred whole, some;",
        f"\tmov.b32 said, {mark.operand}; setp.ge.u32 whole, said, {count};",
        f"\t@whole {line.strip()}",
        f"\t@whole bra GUARDED_{number};",
    ]
    base, _, offset = store["place"].partition("+")
    for k in range(count - 1):
        value, shift = values[k * bits // width], k * bits % width
        place = f"{base}+{int(offset or 0) + k * bits // 8}"
        text.append(
            f"\tsetp.gt.u32 some, said, {k}; shr.b{width} piece, {value}, {shift}; "
            f"cvt.u{max(bits, 16)}.u{width} element, piece; @some st.global.b{bits} [{place}], element;"
        )
    return "\n".join([*text, f"\tGUARDED_{number}: }}"])
