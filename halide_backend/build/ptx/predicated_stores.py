"""Stores that take place in part, or not at all: Halide has no such thing where a region has to be a box.

A kernel marks what it stores (`predicated` and `partial` in `kernel_library/cuda/memory.py`) by a call of a function
that does not exist, whose second argument says whether the value is stored, or how much of it. Every register that
holds some of a marked value gets a companion register, which is written wherever it is. So a store finds what was said
on the way that the thread has taken, however the compiler has merged its branches. The call itself becomes a move
elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from halide_backend.build.ptx.calls import PARTIAL, PREDICATED, Call, calls
from halide_backend.build.ptx.instructions import Module, Statement, address, edited, elements, registers
from halide_backend.build.ptx.instructions import statements as parsed
from halide_backend.errors import HalideCompileError

#: What the compiler does with a value between the call and the store: it joins words to pairs, multiplies a word by
#: 2**32 + 1 to have it twice, and cuts bytes off.
_MOVES = ("and", "cvt", "mov", "mul", "or", "prmt", "shl")
_STORE = re.compile(r"st\.global(?:\.v[24])?\.b(?P<bits>\d+)")

#: What is said of a value that nothing marks: it is stored, the whole of it.
_WHOLE = "-1"

#: Register -> results of the marks of whose values it may hold something.
_Carriers: TypeAlias = Mapping[str, frozenset[str]]


def with_predicated_stores(module: Module, name: str) -> Module:
    """`module` with the stores predicated of what PREDICATED and PARTIAL mark.

    Raises:
        HalideCompileError: a marked value goes anywhere but into stores of its own.
    """
    functions = (replace(f, statements=_predicated(f.statements, name)) for f in module.functions)
    return replace(module, functions=tuple(functions))


def _predicated(statements: tuple[Statement, ...], name: str) -> tuple[Statement, ...]:
    marks = [call for call in calls(statements) if call.function.startswith((PREDICATED, PARTIAL))]
    if not marks:
        return statements
    called = {number for call in marks for number in range(call.begin, call.end)}
    carriers = _carriers(statements, marks, called)
    new = {call.begin: f"{_said(call.result, call.arguments[1].value)}\n\t{{" for call in marks}
    stored: set[str] = set()
    for number, statement in enumerate(statements):
        if number in called or carriers.keys().isdisjoint(statement.registers):
            continue
        if _STORE.fullmatch(statement.opcode) and not statement.guard:
            values = elements(statement.operands[1])
            if not all(value in carriers for value in values):
                raise _unknown(name)
            results = frozenset[str]().union(*(carriers[value] for value in values))
            functions = {call.function for call in marks if call.result in results}
            if len(functions) > 1:
                raise _unknown(name)
            stored |= results
            # All words of a store are said the same of.
            new[number] = _store(statement, functions.pop(), _companion(values[0]), number)
        else:
            new[number] = f"{statement.text} {_accompanied(statement, carriers, name)}"
    if stored != {call.result for call in marks}:
        raise _unknown(name)
    companions = ", ".join(map(_companion, carriers))
    return parsed(f"\n\t.reg .b32 {companions};") + edited(statements, new)


def _carriers(statements: Sequence[Statement], marks: Sequence[Call], called: set[int]) -> _Carriers:
    """The registers that marked values may reach by moves, on any way through the kernel."""
    found = {call.result: frozenset([call.result]) for call in marks}
    grown = True
    while grown:
        grown = False
        for number, statement in enumerate(statements):
            if number in called or statement.operation not in _MOVES:
                continue
            carried = frozenset[str]().union(*(found.get(register, ()) for register in _read(statement)))
            for register in statement.written if carried else ():
                before = found.get(register, frozenset())
                found[register] = before | carried
                grown |= found[register] != before
    return found


def _accompanied(statement: Statement, carriers: _Carriers, name: str) -> str:
    """The moves of companions that belong to a statement that reads or writes a carrier.

    Raises:
        HalideCompileError: it does anything with a marked value but move it.
    """
    sources = [register for register in _read(statement) if register in carriers]
    if sources and (statement.operation not in _MOVES or statement.guard):
        raise _unknown(name)
    said = _companion(sources[0]) if sources else _WHOLE
    return " ".join(_said(register, said) for register in statement.written if register in carriers)


def _read(statement: Statement) -> list[str]:
    """The registers that a statement reads; of a store its address, too."""
    operands = statement.operands[bool(statement.written) :]
    return registers(" ".join((statement.guard, *operands)))


def _companion(register: str) -> str:
    return f"said_{register.removeprefix('%')}"


def _said(register: str, what: str) -> str:
    return f"mov.b32 {_companion(register)}, {what};"


def _unknown(name: str) -> HalideCompileError:
    return HalideCompileError(
        "a value that is not always stored goes to an unknown place in the PTX",
        where=f"kernel {name}",
        cure="Please report it with the kernel's text.",
    )


def _store(statement: Statement, function: str, said: str, number: int) -> str:
    """What takes the place of the store `statement`, the `number`-th of its kernel, of what `function` marks."""
    if function.startswith(PREDICATED):
        return f"{{ .reg .pred kept; setp.ne.b32 kept, {said}, 0;\n\t@kept {statement.text} }}"
    bits, width = int(function.removeprefix(PARTIAL)), int(statement.opcode.rpartition(".")[2][1:])
    values = elements(statement.operands[1])
    count = len(values) * width // bits
    text = [
        f"{{ .reg .b{width} piece; .reg .b{max(bits, 16)} element; .reg .pred whole, some;",
        f"\tsetp.ge.u32 whole, {said}, {count};",
        f"\t@whole {statement.text}",
        f"\t@whole bra GUARDED_{number};",
    ]
    base, offset = address(statement.operands[0])
    for k in range(count - 1):
        place, first = f"[{base}+{offset + k * bits // 8}]", k * bits // width
        if bits > width:
            pair = ", ".join(values[first : first + bits // width])
            text.append(
                f"\tsetp.gt.u32 some, {said}, {k}; @some st.global.v{bits // width}.b{width} {place}, {{{pair}}};"
            )
            continue
        text.append(
            f"\tsetp.gt.u32 some, {said}, {k}; shr.b{width} piece, {values[first]}, {k * bits % width}; "
            f"cvt.u{max(bits, 16)}.u{width} element, piece; @some st.global.b{bits} {place}, element;"
        )
    return "\n".join([*text, f"\tGUARDED_{number}: }}"])
