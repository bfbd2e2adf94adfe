"""An object as text for an assembler: bytes, symbols and relocations, no instruction by its name.

So the object can stand in the C++ source of a model as an `asm` declaration. Whatever compiles that source links the
kernel, and the assembler need not know the processor's instructions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from halide_backend.build import elf
from halide_backend.errors import LoadError

#: By e_machine, r_type of the psABIs: what compiled kernels have, and what LLVM may choose in their place.
_TYPES = {
    elf.X86_64: {
        1: "R_X86_64_64",
        2: "R_X86_64_PC32",
        4: "R_X86_64_PLT32",
        9: "R_X86_64_GOTPCREL",
        24: "R_X86_64_PC64",
        41: "R_X86_64_GOTPCRELX",
        42: "R_X86_64_REX_GOTPCRELX",
    },
    elf.AARCH64: {
        257: "R_AARCH64_ABS64",
        261: "R_AARCH64_PREL32",
        275: "R_AARCH64_ADR_PREL_PG_HI21",
        277: "R_AARCH64_ADD_ABS_LO12_NC",
        278: "R_AARCH64_LDST8_ABS_LO12_NC",
        282: "R_AARCH64_JUMP26",
        283: "R_AARCH64_CALL26",
        284: "R_AARCH64_LDST16_ABS_LO12_NC",
        285: "R_AARCH64_LDST32_ABS_LO12_NC",
        286: "R_AARCH64_LDST64_ABS_LO12_NC",
        299: "R_AARCH64_LDST128_ABS_LO12_NC",
        311: "R_AARCH64_ADR_GOT_PAGE",
        312: "R_AARCH64_LD64_GOT_LO12_NC",
    },
    elf.RISCV: {
        2: "R_RISCV_64",
        18: "R_RISCV_CALL",
        19: "R_RISCV_CALL_PLT",
        20: "R_RISCV_GOT_HI20",
        23: "R_RISCV_PCREL_HI20",
        24: "R_RISCV_PCREL_LO12_I",
        25: "R_RISCV_PCREL_LO12_S",
        35: "R_RISCV_ADD32",
        39: "R_RISCV_SUB32",
    },
}
#: Types whose symbol is the place of another relocation, by which the linker finds it (RISC-V ELF psABI, "PC-Relative
#: Symbol Addresses"); GNU ld refuses a place in a section there.
_NAMES_A_PLACE = {"R_RISCV_PCREL_LO12_I", "R_RISCV_PCREL_LO12_S"}
_FUNCTION, _HIDDEN = 2, 2  # STT_FUNC, STV_HIDDEN


@dataclass(frozen=True)
class _Symbol:
    """`text` is what an expression of the assembler calls it: its name, or a place in a section."""

    text: str
    is_local: bool
    is_function: bool
    is_hidden: bool
    section: int
    value: int
    size: int


def assembler_text(image: bytes, entry: str) -> str:
    """The object in the GNU assembler's language for its architecture, to be followed by other text.

    Tables for unwinding are left out: no exception passes through a kernel.

    Args:
        image: relocatable object, as `compiler.compile_kernel` makes it.
        entry: its function, whose name tells the local labels of several objects apart.

    Raises:
        LoadError: it is no such object, or has what this module does not know.
    """
    try:
        return "\n".join(_lines(image, entry)) + "\n"
    except (struct.error, IndexError, KeyError, ValueError) as error:
        raise LoadError(
            f"it cannot be written as assembly language: {type(error).__name__}: {error}",
            where=f"object of {entry}",
            cure="Clear the kernel cache so that it is compiled anew; if it comes back, please report it.",
        ) from error


def data_text(symbol: str, data: bytes) -> str:
    """Constant `data` under the name of a hidden `symbol`, in the same language."""
    lines = [
        f'.pushsection .rodata.{symbol}, "a", @progbits',
        ".balign 16",
        f".globl {symbol}",
        f".hidden {symbol}",
        f".type {symbol}, @object",
        f"{symbol}:",
        *_numbers(data),
        f".size {symbol}, {len(data)}",
        ".popsection",
    ]
    return "\n".join(lines) + "\n"


def _lines(image: bytes, entry: str) -> Iterator[str]:
    sections = list(elf.sections(image))
    names = elf.section_names(image)
    kept = {
        number
        for number, section in enumerate(sections)
        if section.flags & elf.ALLOCATED and section.size and names[number] != elf.UNWINDING
    }
    labels = {number: f".L{entry}.{number}" for number in kept}
    types = _TYPES[elf.machine(image)]
    symbols = list(_symbols(image, sections, labels))
    for number in sorted(kept):
        section = sections[number]
        flags = "a" + "w" * bool(section.flags & elf.WRITE) + "x" * bool(section.flags & elf.EXECUTED)
        kind = "nobits" if section.kind == elf.NO_BITS else "progbits"
        yield f'.pushsection {names[number]}.{entry}, "{flags}", @{kind}'
        yield f".balign {max(1, section.alignment)}"
        yield f"{labels[number]}:"
        yield from _content(image, section)
        for symbol in symbols:
            if symbol.section == number and not symbol.is_local:
                yield f".globl {symbol.text}"
                yield from ([f".hidden {symbol.text}"] if symbol.is_hidden else [])
                yield from ([f".type {symbol.text}, @function"] if symbol.is_function else [])
                yield f".set {symbol.text}, {labels[number]} + {symbol.value}"
                yield f".size {symbol.text}, {symbol.size}"
        yield ".popsection"
    for table in sections:
        if table.kind == elf.RELOCATIONS and table.info in kept:
            for where, kind_and_symbol, addend in elf.RELOCATION.iter_unpack(elf.content(image, table)):
                kind = types[kind_and_symbol & 0xFFFFFFFF]
                place = symbols[kind_and_symbol >> 32].text
                if kind in _NAMES_A_PLACE:
                    name = f"{entry}.{table.info}.{where}"
                    yield f".set {name}, {place}"
                    place = name
                yield f".reloc {labels[table.info]} + {where}, {kind}, {place} + {addend}"


def _symbols(image: bytes, sections: list[elf.Section], labels: dict[int, str]) -> Iterator[_Symbol]:
    (table,) = (section for section in sections if section.kind == elf.SYMBOL_TABLE)
    strings = sections[table.link].offset
    for name, info, visibility, section, value, size in elf.SYMBOL.iter_unpack(elf.content(image, table)):
        is_local = info >> 4 == elf.LOCAL
        text = f"{labels.get(section, '?')} + {value}" if is_local else elf.string(image, strings + name)
        yield _Symbol(text, is_local, info & 15 == _FUNCTION, visibility & 3 == _HIDDEN, section, value, size)


def _content(image: bytes, section: elf.Section) -> Iterator[str]:
    if section.kind == elf.NO_BITS:
        yield f".zero {section.size}"
    else:
        yield from _numbers(elf.content(image, section))


def _numbers(content: bytes) -> Iterator[str]:
    whole = len(content) & ~7
    words = struct.unpack(f"<{whole // 8}Q", content[:whole])
    for begin in range(0, len(words), 8):
        yield ".quad " + ", ".join(map(hex, words[begin : begin + 8]))
    if content[whole:]:
        yield ".byte " + ", ".join(map(str, content[whole:]))
