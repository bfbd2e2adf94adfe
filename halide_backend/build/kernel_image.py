"""Objects as one image of machine code: position-independent, and relocated as far as is possible before it is loaded.

What maps the image fills in the addresses of functions outside of it, and absolute addresses; it needs no linker. A
shared library would be no simpler: it takes the same relocations, and besides a dynamic section, a table of symbols
with a hash, and program headers; and the loader would look for what kernels call among the symbols that are visible in
the process, where what a model offers its kernels must not be.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from halide_backend.build import elf
from halide_backend.errors import LoadError

#: r_type of the x86-64 psABI: what compiled kernels have, and what LLVM may choose in their place.
_ABSOLUTE, _RELATIVE, _CALL, _RELATIVE_64 = 1, 2, 4, 24
_THROUGH_TABLE = {9, 41, 42}
_WORD = 8
#: jmp *offset(%rip), and two bytes that nobody executes.
_JUMP = struct.Struct("<Hixx")
_JUMP_OPCODE, _JUMP_SIZE = 0x25FF, 6


@dataclass(frozen=True)
class KernelImage:
    """Machine code, and what is to be done to it in memory.

    Attributes:
        data: the bytes to be mapped at a multiple of the page size.
        executed: how many of them, from the first, may be executed and are not written to again; whole pages.
        functions: where each function begins that an object offers to others.
        imports: pairs of the name of a function outside and the place of a word for its address.
        pointers: pairs of the place of a word and the place whose address it has to hold.
    """

    data: bytes
    executed: int
    functions: Mapping[str, int]
    imports: tuple[tuple[str, int], ...]
    pointers: tuple[tuple[int, int], ...]


def kernel_image(objects: Iterable[bytes]) -> KernelImage:
    """One image of relocatable x86-64 objects, as `compiler.compile_kernel` makes them; they do not call each other.

    Raises:
        LoadError: one is no such object, or has what this module does not know.
    """
    image = _Image()
    try:
        parts = [image.add(each) for each in objects]
        return image.finish(parts)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise LoadError(
            f"it cannot become part of an image: {type(error).__name__}: {error}",
            where="object of a kernel",
            cure="Clear the kernel cache so that it is compiled anew; if it comes back, please report it.",
        ) from error


@dataclass(eq=False)
class _Part:
    """Bytes of the image that have the same permissions; `begin` is known when the parts before it are complete."""

    data: bytearray = field(default_factory=bytearray)
    begin: int = 0

    def append(self, content: bytes, alignment: int) -> int:
        """Where the content begins in the part."""
        self.data += bytes(-len(self.data) % max(1, alignment))
        self.data += content
        return len(self.data) - len(content)


@dataclass(frozen=True)
class _Symbol:
    """A place in a part, or, without one, the name of a function outside."""

    part: _Part | None
    place: int
    name: str


@dataclass(frozen=True)
class _Relocation:
    part: _Part
    place: int
    kind: int
    symbol: _Symbol
    addend: int


class _Image:
    def __init__(self) -> None:
        self._executed, self._written = _Part(), _Part()
        self._functions: dict[str, tuple[_Part, int]] = {}

    def add(self, image: bytes) -> list[_Relocation]:
        """Append the object's sections; what is to be done to them when all places are known."""
        if elf.machine(image) != elf.X86_64:
            raise ValueError("it is not for x86-64")
        sections, names = list(elf.sections(image)), elf.section_names(image)
        places = {}
        for number, section in enumerate(sections):
            if section.flags & elf.ALLOCATED and section.size and names[number] != elf.UNWINDING:
                part = self._written if section.flags & elf.WRITE else self._executed
                content = bytes(section.size) if section.kind == elf.NO_BITS else elf.content(image, section)
                places[number] = part, part.append(content, section.alignment)
        symbols = self._symbols(image, sections, places)
        relocations = []
        for table in sections:
            if table.kind == elf.RELOCATIONS and table.info in places:
                part, begin = places[table.info]
                for where, packed, addend in elf.RELOCATION.iter_unpack(elf.content(image, table)):
                    kind, symbol = packed & 0xFFFFFFFF, symbols[packed >> 32]
                    relocations.append(_Relocation(part, begin + where, kind, symbol, addend))
        return relocations

    def _symbols(
        self, image: bytes, sections: list[elf.Section], places: Mapping[int, tuple[_Part, int]]
    ) -> list[_Symbol]:
        (table,) = (section for section in sections if section.kind == elf.SYMBOL_TABLE)
        strings = sections[table.link].offset
        symbols = []
        for name, info, _, section, value, _ in elf.SYMBOL.iter_unpack(elf.content(image, table)):
            part, begin = places.get(section, (None, 0))
            symbols.append(_Symbol(part, begin + value, elf.string(image, strings + name)))
            if part is not None and info >> 4 != elf.LOCAL:
                self._functions[symbols[-1].name] = part, symbols[-1].place
        return symbols

    def finish(self, objects: Iterable[list[_Relocation]]) -> KernelImage:
        relocations = [relocation for each in objects for relocation in each]
        # A call from outside goes through a jump, and that through a word with the address.
        outside = sorted({each.symbol.name for each in relocations if each.symbol.part is None})
        words = {name: self._written.append(bytes(_WORD), _WORD) for name in outside}
        jumps = {name: self._executed.append(bytes(_JUMP.size), _JUMP.size) for name in outside}
        table = {
            each.symbol: self._written.append(bytes(_WORD), _WORD)
            for each in relocations
            if each.kind in _THROUGH_TABLE and each.symbol.part is not None
        }
        self._executed.append(b"", mmap.PAGESIZE)
        self._written.begin = len(self._executed.data)
        for name, place in jumps.items():
            offset = self._written.begin + words[name] - place - _JUMP_SIZE
            _JUMP.pack_into(self._executed.data, place, _JUMP_OPCODE, offset)
        imports = [(name, self._written.begin + word) for name, word in words.items()]
        pointers = [(self._written.begin + word, _place(symbol)) for symbol, word in table.items()]
        for each in relocations:
            place = each.part.begin + each.place
            symbol = each.symbol
            if each.kind == _ABSOLUTE and symbol.part is not None and each.part is self._written:
                pointers.append((place, _place(symbol) + each.addend))
                continue
            if each.kind in _THROUGH_TABLE:
                to = self._written.begin + (words[symbol.name] if symbol.part is None else table[symbol])
            elif each.kind in (_RELATIVE, _CALL, _RELATIVE_64):
                to = jumps[symbol.name] if symbol.part is None else _place(symbol)
            else:
                raise ValueError(f"its relocation of type {each.kind} to {symbol.name!r} is not known")
            form = "<q" if each.kind == _RELATIVE_64 else "<i"
            struct.pack_into(form, each.part.data, each.place, to + each.addend - place)
        functions = {name: part.begin + place for name, (part, place) in self._functions.items()}
        data = bytes(self._executed.data + self._written.data)
        return KernelImage(data, len(self._executed.data), functions, tuple(imports), tuple(pointers))


def _place(symbol: _Symbol) -> int:
    assert symbol.part is not None
    return symbol.part.begin + symbol.place
