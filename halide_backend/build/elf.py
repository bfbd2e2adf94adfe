"""What is asked of ELF files: the symbols, sections and relocations of an object, the build id of a library.

Layout: System V ABI, "Object Files"; only 64-bit little-endian files are understood. pyelftools reads them too, but
takes a hundred times as long for what each kernel is asked when it is compiled and again when it is loaded (1.8 ms,
15 us; pyelftools 0.33, CPython 3.11).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

RELOCATABLE = 1  # e_type ET_REL
X86_64, AARCH64, RISCV = 62, 183, 243  # e_machine EM_X86_64, EM_AARCH64, EM_RISCV

_IDENTITY = b"\x7fELF\x02\x01\x01"  # magic, 64 bits, little-endian, version 1
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
SYMBOL = struct.Struct("<IBBHQQ")  # name, binding and type, visibility, section, value, size
RELOCATION = struct.Struct("<QQq")  # where, symbol << 32 | type, addend
SYMBOL_TABLE, RELOCATIONS, NO_BITS, _NOTE = 2, 4, 8, 7  # sh_type SHT_SYMTAB, SHT_RELA, SHT_NOBITS, SHT_NOTE
_BUILD_ID = 3  # n_type NT_GNU_BUILD_ID
WRITE, ALLOCATED, EXECUTED = 1, 2, 4  # sh_flags
LOCAL = 0  # STB_LOCAL
UNWINDING = ".eh_frame"  # the section of tables for unwinding


class NotAnObject(ValueError):
    """The bytes are not a whole 64-bit little-endian ELF file."""


class Section(NamedTuple):
    """A section header; `name` is an offset in the section of names, `offset` and `size` are in bytes of the file."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


@dataclass(frozen=True)
class Symbols:
    """The global symbols of an object: those it defines, and those it needs from outside."""

    kind: int
    machine: int
    defined: frozenset[str]
    undefined: frozenset[str]


def symbols(image: bytes) -> Symbols:
    """List the global symbols of an object file (~20 us for a kernel).

    Raises:
        NotAnObject: anything points outside the image.
    """
    try:
        return _symbols(image)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise NotAnObject(f"not a whole ELF file: {error}") from None


def machine(image: bytes) -> int:
    """The processor that an object file is for, `e_machine`."""
    return int(_HEADER.unpack_from(image)[2])


def build_id(path: str) -> str | None:
    """Return the build id (hex) that the linker wrote into a library, or None without one.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
        try:
            for section in sections(image):
                note = image[section.offset : section.offset + section.size] if section.kind == _NOTE else b""
                if note and (found := _build_id(note)):
                    return found
        except (struct.error, NotAnObject):
            pass
    return None


def _symbols(image: bytes) -> Symbols:
    known = list(sections(image))
    kind, machine = _HEADER.unpack_from(image)[1:3]
    defined: set[str] = set()
    undefined: set[str] = set()
    for table in known:
        _within(image, table.kind, table.offset, table.size)
        if table.kind != SYMBOL_TABLE:
            continue
        if table.entry_size != SYMBOL.size:
            raise NotAnObject("not a whole ELF file: odd symbol size")
        strings = known[table.link].offset
        for symbol in SYMBOL.iter_unpack(image[table.offset : table.offset + table.size]):
            name, binding, section = symbol[0], symbol[1] >> 4, symbol[3]
            if binding != LOCAL:
                (defined if section else undefined).add(string(image, strings + name))
    return Symbols(kind, machine, frozenset(defined), frozenset(undefined))


def sections(image: bytes | mmap.mmap) -> Iterator[Section]:
    """Yield every section, in order.

    Raises:
        NotAnObject, struct.error: it is not a whole file.
    """
    if image[: len(_IDENTITY)] != _IDENTITY:
        raise NotAnObject("not a 64-bit little-endian ELF file")
    header = _HEADER.unpack_from(image)
    table, count = header[6], header[12]
    for at in range(count):
        yield Section._make(_SECTION.unpack_from(image, table + at * _SECTION.size))


def content(image: bytes, section: Section) -> bytes:
    """The bytes of a section that has some in the file."""
    return image[section.offset : section.offset + section.size]


def section_names(image: bytes) -> list[str]:
    """The names of all sections, in order."""
    known = list(sections(image))
    table = known[_HEADER.unpack_from(image)[13]]  # e_shstrndx
    return [string(image, table.offset + section.name) for section in known]


def string(image: bytes, at: int) -> str:
    """The string of a table of strings that begins at byte `at`."""
    return image[at : image.index(b"\0", at)].decode()


def _within(image: bytes, kind: int, offset: int, size: int) -> None:
    if kind != NO_BITS and offset + size > len(image):
        raise NotAnObject("not a whole ELF file: a section ends beyond it")


def _build_id(note: bytes) -> str | None:
    at = 0
    while at + 12 <= len(note):
        name_size, size, kind = struct.unpack_from("<III", note, at)
        name = note[at + 12 : at + 12 + name_size]
        start = at + 12 + (name_size + 3) // 4 * 4
        if kind == _BUILD_ID and name == b"GNU\0":
            return note[start : start + size].hex()
        at = start + (size + 3) // 4 * 4
    return None
