"""A model as bytecode: instructions and what they work on; `program.cpp` executes them.

Everything is written as integers (8 bytes, little-endian), texts (length, bytes) and lists (length, items).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

#: The version of the format, which the library has to have, too.
FORMAT = 1


class Kind(IntEnum):
    """What a value is: a number, a size that was computed, a tensor, a dtype, a text, or where a result goes."""

    CONSTANT, SIZE, TENSOR, DTYPE, TEXT, RESULT = range(6)


@dataclass(frozen=True)
class Value:
    """One value of an instruction; sizes and tensors are numbered.

    The inputs are the first tensors; the model's constants are -1, -2, ..., in their order.
    """

    kind: Kind
    content: int | str


@dataclass(frozen=True)
class Argument:
    """One argument of a C function of torch: a value, or a pointer to several, or to one that might be absent."""

    values: tuple[Value, ...]
    is_pointer: bool = False


Operand: TypeAlias = "int | str | Value | Argument | Instruction | tuple[Operand, ...]"


@dataclass(frozen=True)
class Instruction:
    """One instruction. Tensors and sizes that stand first are results.

    | name | operands | |
    |---|---|---|
    | SIZE | size, tensor, axis | a size of an input |
    | ARITHMETIC | size, operation, value, value | on sizes |
    | CHECK | tensor, name, dtype, sizes, strides | an error unless the input is that |
    | RANGE | size, name, least, most | an error unless it is between them |
    | EMPTY | tensor, dtype, sizes, strides | memory on the CPU |
    | VIEW | tensor, tensor, sizes, strides, offset | other sizes; the offset is in elements from the tensor's first |
    | SHIM | function, arguments | a C function of torch |
    | KERNEL | name, place, tensors, sizes | the C function (docs/reference/c-interface.md) at that byte of the image |
    | FREE | tensor | it is not needed any more |
    """

    name: str
    operands: tuple[Operand, ...]


def encoded(operand: Operand) -> bytes:
    """The operand or instruction as bytes."""
    if isinstance(operand, int):
        return struct.pack("<q", operand)
    if isinstance(operand, str):
        data = operand.encode()
        return struct.pack("<q", len(data)) + data
    if isinstance(operand, tuple):
        return struct.pack("<q", len(operand)) + b"".join(map(encoded, operand))
    if isinstance(operand, Instruction):
        return encoded(operand.name) + fields(operand.operands)
    if isinstance(operand, Argument):
        return fields((int(operand.is_pointer), operand.values))
    return fields((int(operand.kind), operand.content))


def fields(operands: Iterable[Operand]) -> bytes:
    """Operands one after another, whose number is known to the reader."""
    return b"".join(map(encoded, operands))


def constant(number: int | float) -> Value:
    """A number that does not change: a double is in its bits."""
    bits = struct.pack("<d" if isinstance(number, float) else "<q", number)
    return Value(Kind.CONSTANT, int.from_bytes(bits, "little", signed=True))


def records(rows: Iterable[Iterable[Operand]]) -> bytes:
    """A list of rows whose fields are known to the reader."""
    parts = [fields(row) for row in rows]
    return encoded(len(parts)) + b"".join(parts)
