"""PTX as data: modules of functions of statements, parsed from a text and printed as they were read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

_ENTRY = re.compile(r"(?P<signature>\.visible \.entry (?P<name>\w+)\((?P<parameters>[^)]*)\))(?P<directives>[^{]*)\{")
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.[bfsu](\d+)[^,]*?\s(\w+)\s*(?:,|$)")
_BLANK = r"(?:\s|//[^\n]*)*"
_STATEMENT = re.compile(
    rf"(?P<before>{_BLANK})"
    r"(?P<text>(?:"
    r"(?P<label>[$\w]+):(?!:)|"
    r"(?P<brace>[{}])|"
    r"(?:@(?P<guard>!?[%\w]+)\s+)?(?P<opcode>[\w.:]+)(?P<operands>[^;]*);"
    r"))(?P<comment>(?:[ \t]*//[^\n]*)?)"
)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,\s|]+")
_REGISTER = re.compile(r"%[a-z]+\d+")
_VERSION = re.compile(r"^\.version (\d+)\.(\d+)$", re.MULTILINE)
_TARGET = re.compile(r"^\.target sm_(\d+)", re.MULTILINE)


class Statement(NamedTuple):
    """An instruction, a directive, a label, or the brace of a scope.

    Attributes:
        text: as it was read.
        before: the blanks and the lines of comment in front of it.
        label: what a label is called; else "".
        guard: the predicate of an instruction, "%p1" or "!%p1"; else "".
        opcode: "ld.global.nc.v2.b64"; ".reg" of a directive; "{" or "}" of a scope; "" of a label.
        operands: "%r1", "{%r1, %r2}", "[%rd1+8]", "(param0, param1)", "4" ..., the destination first.
        comment: that behind it on its line.
    """

    text: str
    before: str = ""
    label: str = ""
    guard: str = ""
    opcode: str = ""
    operands: tuple[str, ...] = ()
    comment: str = ""

    @property
    def operation(self) -> str:
        """The opcode without its modifiers and types."""
        return self.opcode.partition(".")[0]

    @property
    def registers(self) -> list[str]:
        """Virtual registers of the compiler that the statement names, its guard first."""
        return _REGISTER.findall(" ".join((self.guard, *self.operands)))

    @property
    def written(self) -> list[str]:
        """Virtual registers of the compiler that the instruction writes: its first operand, which may be a vector."""
        return registers(self.operands[0]) if self.operands and not self.operands[0].startswith("[") else []

    def __str__(self) -> str:
        return self.before + self.text + self.comment


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, of `bits` bits."""

    name: str
    bits: int


@dataclass(frozen=True)
class Function:
    """A kernel: `signature`, performance `directives`, and its statements in braces; `before` and `end` are the text
    in front of it and in front of its last brace."""

    name: str
    signature: str
    statements: tuple[Statement, ...]
    before: str = ""
    directives: str = "\n"
    end: str = "\n"

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What it is launched with, in order."""
        listed = self.signature[self.signature.index("(") + 1 : -1]
        return tuple(Parameter(name, int(bits)) for bits, name in _PARAMETER.findall(listed))

    @property
    def body(self) -> str:
        """The text between its braces."""
        return "".join(map(str, self.statements)) + self.end

    def __str__(self) -> str:
        return f"{self.before}{self.signature}{self.directives}{{{self.body}}}"


@dataclass(frozen=True)
class Module:
    """The kernels of a PTX text, and what stands behind the last one; what stands before belongs to the kernels."""

    functions: tuple[Function, ...]
    end: str = "\n"

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return tuple(function.name for function in self.functions)

    @property
    def version(self) -> tuple[int, int]:
        """The version of PTX that it is written in.

        Raises:
            ValueError: it does not say.
        """
        major, minor = _found(_VERSION, self.functions[0].before)
        return major, minor

    @property
    def target(self) -> int:
        """The compute capability that it is written for, 90 for 9.0.

        Raises:
            ValueError: it does not say.
        """
        return _found(_TARGET, self.functions[0].before)[0]

    def requiring(self, version: tuple[int, int], target: int = 0) -> Module:
        """The same in a version of PTX, and for a compute capability, that are at least these."""
        first, *rest = self.functions
        major, minor = max(version, self.version)
        head = _VERSION.sub(f".version {major}.{minor}", first.before, count=1)
        head = _TARGET.sub(f".target sm_{max(target, self.target)}", head, count=1)
        return replace(self, functions=(replace(first, before=head), *rest))

    def __str__(self) -> str:
        return "".join(map(str, self.functions)) + self.end


def parse(text: str) -> Module:
    """The module that prints as `text`.

    Raises:
        ValueError: a kernel has no end, or a statement of no known form.
    """
    functions, at = [], 0
    while head := _ENTRY.search(text, at):
        statements, end, behind = _body(text, head.end())
        before = text[at : head.start()]
        functions.append(Function(head["name"], head["signature"], statements, before, head["directives"], end))
        at = behind
    return Module(tuple(functions), text[at:])


def statements(text: str) -> tuple[Statement, ...]:
    """The statements of a piece of a kernel.

    Raises:
        ValueError: one has no known form.
    """
    found, at = [], 0
    while text[at:].strip():
        statement, at = _statement(text, at)
        found.append(statement)
    return tuple(found)


def registers(operand: str) -> list[str]:
    """Virtual registers of the compiler in an operand."""
    return _REGISTER.findall(operand)


def elements(operand: str) -> list[str]:
    """What a vector `{%r1, %r2}` consists of, or the operand itself."""
    return [element.strip() for element in operand.strip("{}").split(",")]


def address(operand: str) -> tuple[str, int]:
    """Base and offset in bytes of a memory operand, `[%rd1+8]`."""
    base, _, offset = operand.strip("[]").partition("+")
    return base.strip(), int(offset or 0)


def edited(old: Iterable[Statement], new: dict[int, str]) -> tuple[Statement, ...]:
    """The statements `old`, those at the keys of `new` replaced by what its texts consist of: "" for nothing."""
    found: list[Statement] = []
    for number, statement in enumerate(old):
        if number in new:
            found += statements(statement.before + new[number]) if new[number] else ()
        else:
            found.append(statement)
    return tuple(found)


def _found(pattern: re.Pattern[str], text: str) -> tuple[int, ...]:
    found = pattern.search(text)
    if found is None:
        raise ValueError(f"no {pattern.pattern!r} in the PTX")
    return tuple(map(int, found.groups()))


def _body(text: str, at: int) -> tuple[tuple[Statement, ...], str, int]:
    """The statements from `at` to the brace that ends the kernel, the text before the brace, the place behind it."""
    found: list[Statement] = []
    depth = 0
    while True:
        statement, behind = _statement(text, at)
        depth += {"{": 1, "}": -1}.get(statement.opcode, 0)
        if depth < 0:
            return tuple(found), statement.before, at + len(statement.before) + 1
        found.append(statement)
        at = behind


def _statement(text: str, at: int) -> tuple[Statement, int]:
    match = _STATEMENT.match(text, at)
    if match is None:
        line = text[at:].strip().partition("\n")[0]
        raise ValueError(f"no statement of PTX: {line!r}")
    opcode = match["brace"] or match["opcode"] or ""
    operands = tuple(_OPERAND.findall(match["operands"] or ""))
    statement = Statement(
        match["text"],
        match["before"],
        match["label"] or "",
        match["guard"] or "",
        opcode,
        operands,
        match["comment"],
    )
    return statement, match.end()
