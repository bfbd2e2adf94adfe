"""Objects as text: what an assembler makes of it must be what LLVM made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from kernel_texts import ROW_SUMS, elementwise

from halide_backend.build import elf
from halide_backend.build.assembler_text import assembler_text
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.target import Target
from halide_backend.errors import LoadError

HOST = Target.host()
needs_assembler = pytest.mark.skipif(not shutil.which("as"), reason="needs an assembler (as)")

#: Two parameters, a check, constants in memory, calls of the runtime and of the C library.
TEXT = ROW_SUMS.replace("total = total + lanes[lane, i]", "total = total + hl.sin(lanes[lane, i]) * 3.7")


@pytest.fixture(scope="module")
def image() -> bytes:
    return compile_kernel(TEXT, HOST, "rows", c_interface=True).object


def assembled(text: str, folder: Path) -> bytes:
    (folder / "text.s").write_text(text)
    subprocess.run(["as", "--fatal-warnings", "text.s", "-o", "text.o"], cwd=folder, check=True)
    return (folder / "text.o").read_bytes()


def contents(image: bytes, ending: str = "") -> dict[str, bytes]:
    """Name of a section, without `ending`, -> what it has; those that are not empty and come into memory."""
    sections = list(elf.sections(image))
    names = sections[int.from_bytes(image[62:64], "little")].offset
    return {
        elf.string(image, names + section.name).removesuffix(ending): image[section.offset :][: section.size]
        for section in sections
        if section.flags & 2 and section.size
    }


@needs_assembler
def test_bytes_and_symbols_are_those_of_the_object(image: bytes, tmp_path: Path) -> None:
    again = assembled(assembler_text(image, "rows"), tmp_path)
    wanted = contents(image)
    del wanted[".eh_frame"]
    assert {".text", ".rodata", ".data.rel.ro"} <= set(wanted)
    assert contents(again, ".rows") == wanted
    was, now = elf.symbols(image), elf.symbols(again)
    assert {"halide_do_par_for", "halide_backend_run", "sinf"} <= was.undefined
    assert now == was


@needs_assembler
def test_two_objects_have_room_in_one_text(image: bytes, tmp_path: Path) -> None:
    other = compile_kernel(elementwise("a + a"), HOST, "doubled", c_interface=True).object
    text = assembler_text(image, "rows") + assembler_text(other, "doubled")
    both = elf.symbols(assembled(text, tmp_path)).defined
    assert both == elf.symbols(image).defined | elf.symbols(other).defined


def test_its_symbols_are_hidden_and_it_names_no_instruction(image: bytes) -> None:
    text = assembler_text(image, "rows")
    lines = text.splitlines()
    visible = {line.split()[1] for line in lines if line.startswith(".globl ")}
    assert visible == elf.symbols(image).defined
    assert visible == {line.split()[1] for line in lines if line.startswith(".hidden ")}
    assert all(line.startswith(".") for line in lines)


@pytest.mark.parametrize("damage", ["cut", "relocation", "text"])
def test_what_is_no_object_is_refused(image: bytes, damage: str) -> None:
    if damage == "relocation":  # of a type that it does not know
        table = next(s for s in elf.sections(image) if s.kind == elf.RELOCATIONS)
        image = image[: table.offset + 8] + b"\x99" + image[table.offset + 9 :]
    image = {"cut": image[:1000], "relocation": image, "text": b"no object"}[damage]
    with pytest.raises(LoadError, match="cannot be written as assembly language") as caught:
        assembler_text(image, "rows")
    assert "rows" in caught.value.where and caught.value.cure
