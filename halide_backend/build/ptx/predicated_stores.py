"""Stores that take place in part, or not at all: Halide has no such thing where a region has to be a box.

A kernel marks what it stores (`predicated` and `partial` in `kernel_library/cuda/memory.py`) by a call of a function
that does not exist. Here the store is found into which the marked value flows, and made to depend on what the mark
says. The call itself becomes a move elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from halide_backend.build.ptx.calls import PARTIAL, PREDICATED, calls
from halide_backend.build.ptx.instructions import Module, Statement, address, edited, elements
from halide_backend.errors import HalideCompileError

#: What the compiler does with a value between the call and the store: it joins words to pairs, multiplies a word by
#: 2**32 + 1 to have it twice, and cuts bytes off.
_MOVES = ("and", "cvt", "mov", "mul", "or", "prmt", "shl")
_STORE = re.compile(r"st\.global(?:\.v[24])?\.b(?P<bits>\d+)")


@dataclass(frozen=True)
class _Mark:
    """`function` is PREDICATED or PARTIAL with a number of bits, `operand` the second argument of its call into
    `result`."""

    function: str
    operand: str
    result: str


#: A mark and the number of the basic block that its call is in.
_Marked: TypeAlias = tuple[_Mark, int]


def with_predicated_stores(module: Module, name: str) -> Module:
    """`module` with the stores predicated of what PREDICATED and PARTIAL mark.

    Raises:
        HalideCompileError: a marked value goes anywhere but into stores of its own.
    """
    functions = (replace(f, statements=_predicated(f.statements, name)) for f in module.functions)
    return replace(module, functions=tuple(functions))


def _predicated(statements: tuple[Statement, ...], name: str) -> tuple[Statement, ...]:
    marks = {
        call.result: _Mark(call.function, call.arguments[1].value, call.result)
        for call in calls(statements)
        if call.function.startswith((PREDICATED, PARTIAL))
    }
    if not marks:
        return statements
    stores = list(_stores(statements, marks, name))
    if {mark.result for _, carried, _ in stores for mark, _ in carried} != set(marks):
        raise _unknown(name)
    return edited(
        statements,
        {
            number: _store(statements[number], _chosen(carried, block, name), number)
            for number, carried, block in stores
        },
    )


def _stores(
    statements: Sequence[Statement], marks: Mapping[str, _Mark], name: str
) -> Iterator[tuple[int, frozenset[_Marked], int]]:
    """The stores of marked values: their numbers, the marks, and the basic blocks that they are in."""
    carriers: dict[str, frozenset[_Marked]] = {}
    block = 0
    for number, statement in enumerate(statements):
        block += bool(statement.label)
        carried = frozenset[_Marked]().union(*(carriers.get(register, ()) for register in statement.registers))
        if "[retval0]" in statement.operands and statement.operands[0] in marks:
            carriers[statement.operands[0]] = frozenset([(marks[statement.operands[0]], block)])
        elif not carried:
            continue
        elif _STORE.fullmatch(statement.opcode) and not statement.guard:
            if not all(value in carriers for value in elements(statement.operands[1])):
                raise _unknown(name)
            yield number, carried, block
        elif statement.operation in _MOVES:
            carriers.update(dict.fromkeys(statement.written, carried))
        else:
            raise _unknown(name)


def _chosen(carried: frozenset[_Marked], block: int, name: str) -> _Mark:
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


def _store(statement: Statement, mark: _Mark, number: int) -> str:
    """What takes the place of the store `statement`, the `number`-th of its kernel."""
    if mark.function.startswith(PREDICATED):
        return (
            f"{{ .reg .b32 said; .reg .pred kept; mov.b32 said, {mark.operand}; setp.ne.b32 kept, said, 0;\n"
            f"\t@kept {statement.text} }}"
        )
    bits, width = int(mark.function.removeprefix(PARTIAL)), int(statement.opcode.rpartition(".")[2][1:])
    values = elements(statement.operands[1])
    count = len(values) * width // bits
    text = [
        f"{{ .reg .b32 said; .reg .b{width} piece; .reg .b{max(bits, 16)} element; .reg .pred whole, some;",
        f"\tmov.b32 said, {mark.operand}; setp.ge.u32 whole, said, {count};",
        f"\t@whole {statement.text}",
        f"\t@whole bra GUARDED_{number};",
    ]
    base, offset = address(statement.operands[0])
    for k in range(count - 1):
        value, shift = values[k * bits // width], k * bits % width
        text.append(
            f"\tsetp.gt.u32 some, said, {k}; shr.b{width} piece, {value}, {shift}; "
            f"cvt.u{max(bits, 16)}.u{width} element, piece; @some st.global.b{bits} [{base}+{offset + k * bits // 8}], "
            "element;"
        )
    return "\n".join([*text, f"\tGUARDED_{number}: }}"])
