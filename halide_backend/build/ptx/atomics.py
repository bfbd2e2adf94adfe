"""Atomic additions: a kernel marks what it stores, and the store becomes an addition of what it has stored.

Halide has none for floats that it may not reorder, and none for numbers of fewer than 32 bits. Where a thread adds
whole, aligned vectors, its additions follow one another in the PTX, at adjacent offsets of one register, and are
joined. Of two that often go to one place the thread adds the sum, if they do: the additions of a warp to one place
wait for each other. What the processor cannot add it compares and swaps, as a part of the 32-bit word that it lies in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from halide_backend.build.ptx.calls import ADDEND, calls
from halide_backend.build.ptx.instructions import Module, Statement, address, edited
from halide_backend.errors import HalideCompileError

#: Instruction that adds numbers of a kind; of 16-bit floats it says that denormals are kept.
_INSTRUCTIONS = {
    **{kind: f"add.{kind}" for kind in ("f32", "f64", "u32", "u64")},
    **{kind: f"add.noftz.{kind}" for kind in ("f16", "bf16")},
}

#: The compute capability, and the version of PTX, from which an instruction adds a vector, or bfloat16.
_CAPABILITY, _VERSION = 90, (8, 1)

_STORE = re.compile(r"st\.global\.b(\d+)")
_KIND = re.compile(r"(u|b?f)(\d+)(?:_v(\d))?(?:_again(\d+))?")

#: Numbers of which a thread adds the sum of two.
_SUMMED = "f32"


@dataclass(frozen=True)
class Addend:
    """Numbers of `bits` bits that are floats or, if `kind` begins with u, integers; a thread adds `count` adjacent
    ones, from a multiple of `count` on. The one that it adds `again` additions later often goes to the same place, if
    that is not 0."""

    kind: str
    bits: int
    count: int
    again: int = 0

    @staticmethod
    def of(name: str) -> Addend:
        """That of the function `name`, `ADDEND` with f32, bf16 or the like, _v4 for vectors of four, and _again1 if
        the next one often goes to the same place."""
        found = _KIND.fullmatch(name.removeprefix(ADDEND))
        if found is None:
            raise ValueError(f"{name!r} names no addend")
        return Addend(found[1] + found[2], int(found[2]), int(found[3] or 1), int(found[4] or 0))


@dataclass(frozen=True)
class _Addition:
    """What the statement `number` stands for: add `register` to the number at `base` + `offset` bytes."""

    number: int
    addend: Addend
    base: str
    offset: int
    register: str

    @property
    def place(self) -> str:
        return f"{self.base}+{self.offset}" if self.offset else self.base


def with_atomics(module: Module, capability: str, name: str) -> Module:
    """`module` for `capability` ("sm_90", or "compute_90" for PTX) in which the stores of what `ADDEND` marks add.

    Raises:
        HalideCompileError: an addend goes anywhere but into one store.
    """
    new = int(capability.partition("_")[2]) >= _CAPABILITY
    functions = []
    required = False
    for function in module.functions:
        # The compiler may have merged the ends of two branches: then both calls write one register, stored once.
        addends = {
            call.result: Addend.of(call.function)
            for call in calls(function.statements)
            if call.function.startswith(ADDEND)
        }
        required |= new and any(addend.count > 1 or addend.kind == "bf16" for addend in addends.values())
        functions.append(replace(function, statements=_with_atomics(function.statements, addends, new, name)))
    module = replace(module, functions=tuple(functions))
    return module.requiring(_VERSION, _CAPABILITY) if required else module


def _with_atomics(
    statements: tuple[Statement, ...], addends: Mapping[str, Addend], new: bool, name: str
) -> tuple[Statement, ...]:
    found: list[_Addition] = []
    for number, statement in enumerate(statements):
        store = _STORE.fullmatch(statement.opcode)
        addend = addends.get(statement.operands[1]) if store and not statement.guard else None
        if store and addend and int(store[1]) == addend.bits:
            found.append(_Addition(number, addend, *address(statement.operands[0]), statement.operands[1]))
    for register in addends:
        count = sum(addition.register == register for addition in found)
        if count != 1:
            raise HalideCompileError(
                f"an addend is stored {count} times",
                where=f"kernel {name}",
                cure="Please report it with the kernel's text.",
            )
    texts: dict[int, str] = {}
    for first, second in _pairs(statements, found):
        texts |= {first.number: "", second.number: _summed(first, second)}
    found = [addition for addition in found if addition.number not in texts]
    while found:
        vector = _vector(statements, found) if new else found[:1]
        found = found[len(vector) :]
        texts.update({addition.number: "" for addition in vector})
        texts[vector[-1].number] = _instruction(vector, new)
    return edited(statements, texts)


def _pairs(statements: Sequence[Statement], additions: list[_Addition]) -> Iterator[tuple[_Addition, _Addition]]:
    """Those of the `additions` that often go to one place, and that a thread does one after the other."""
    number = 0
    while number < len(additions):
        again = additions[number].addend.again
        both = additions[number : number + 2 * again]
        if not again or {addition.addend for addition in both} != {Addend(_SUMMED, 32, 1, again)}:
            number += 1
            continue
        # The compiler may have joined the end of one branch with that of another.
        yield from (pair for pair in zip(both, both[again:]) if _straight(statements, pair))
        number += len(both)


def _straight(statements: Sequence[Statement], additions: Sequence[_Addition]) -> bool:
    """Whether a thread that does the first of the `additions` does all of them."""
    between = statements[additions[0].number : additions[-1].number]
    return not any(other.label or other.guard or other.operation == "bra" for other in between)


def _summed(first: _Addition, second: _Addition) -> str:
    """Both additions, or that of their sum if they go to one place."""
    add = f"red.global.{_INSTRUCTIONS[_SUMMED]}"
    return (
        "{ .reg .b64 one, other; .reg .b32 sum; .reg .pred same;\n"
        f"\tadd.s64 one, {first.base}, {first.offset}; add.s64 other, {second.base}, {second.offset};\n"
        f"\tsetp.eq.s64 same, one, other; add.rn.f32 sum, {first.register}, {second.register};\n"
        f"\tselp.b32 sum, sum, {first.register}, same;\n"
        f"\t{add} \t[one], sum; @!same {add} \t[other], {second.register}; }}"
    )


def _vector(statements: Sequence[Statement], additions: list[_Addition]) -> list[_Addition]:
    """The first of the `additions`, with those that the same instruction can do."""
    first = additions[0]
    vector = additions[: first.addend.count]
    straight = _straight(statements, vector)
    step = first.addend.bits // 8
    places = [(first.base, first.offset + k * step, first.addend) for k in range(first.addend.count)]
    return vector if straight and [(a.base, a.offset, a.addend) for a in vector] == places else [first]


def _instruction(vector: list[_Addition], new: bool) -> str:
    if len(vector) > 1:
        return _joined(vector)
    kind = vector[0].addend.kind
    known = kind in _INSTRUCTIONS and (new or kind != "bf16")
    return _single(vector[0]) if known else _swapped(vector[0])


def _joined(vector: list[_Addition]) -> str:
    first, count = vector[0], len(vector)
    operation, _, kind = _INSTRUCTIONS[first.addend.kind].rpartition(".")
    instruction = f"red.relaxed.gpu.global.{operation}.v{count}.{kind} \t[{first.base}+{first.offset}]"
    values = [addition.register for addition in vector]
    if first.addend.bits == 32:
        return f"{instruction}, {{{', '.join(values)}}};"
    halves = [f"half{k}" for k in range(count)]
    moves = " ".join(f"cvt.u16.u32 {half}, {value};" for half, value in zip(halves, values))
    return f"{{ .reg .b16 {', '.join(halves)}; {moves}\n\t{instruction}, {{{', '.join(halves)}}}; }}"


def _single(addition: _Addition) -> str:
    instruction = f"red.global.{_INSTRUCTIONS[addition.addend.kind]} \t[{addition.place}]"
    if addition.addend.bits >= 32:
        return f"{instruction}, {addition.register};"
    return f"{{ .reg .b16 half; cvt.u16.u32 half, {addition.register}; {instruction}, half; }}"


def _swapped(addition: _Addition) -> str:
    """A loop that adds to a part of a word, whose other parts keep their bits."""
    bits, again = addition.addend.bits, f"ADDED_{addition.number}"
    if addition.addend.kind == "bf16":
        # The sum of two bfloat16 in float32 rounds to the same bfloat16 as the exact one.
        add = (
            f"shl.b32 sum, sum, 16; shl.b32 more, {addition.register}, 16; add.rn.f32 sum, sum, more; "
            "cvt.rn.bf16.f32 half, sum; cvt.u32.u16 sum, half;"
        )
    else:
        add = f"add.u32 sum, sum, {addition.register};"
    return (
        "{ .reg .b64 word; .reg .b32 place, old, seen, sum, more; .reg .b16 half; .reg .pred again;\n"
        f"\tadd.s64 word, {addition.base}, {addition.offset}; cvt.u32.u64 place, word; and.b64 word, word, -4;\n"
        "\tand.b32 place, place, 3; shl.b32 place, place, 3; ld.relaxed.gpu.global.b32 old, [word];\n"
        f"\t{again}: mov.b32 seen, old; bfe.u32 sum, seen, place, {bits}; {add}\n"
        f"\tbfi.b32 sum, sum, seen, place, {bits};\n"
        "\tatom.relaxed.gpu.global.cas.b32 old, [word], seen, sum; setp.ne.b32 again, old, seen; "
        f"@again bra {again}; }}"
    )
