from __future__ import annotations

import contextlib
import importlib.util
import struct
from pathlib import Path

import pytest
from kernel_texts import DOUBLED, ROW_SUMS

from halide_backend.build import elf
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.target import Target


@pytest.fixture(scope="module")
def image() -> bytes:
    return compile_kernel(ROW_SUMS, Target.host(), "summed").object


def test_symbols_of_a_kernel(image: bytes) -> None:
    found = elf.symbols(image)
    assert (found.kind, found.machine) == (elf.RELOCATABLE, elf.X86_64)
    assert found.undefined == {"halide_do_par_for"}
    assert {"summed", "summed_argv", "summed_metadata"} < found.defined


def test_a_kernel_without_parallel_loops_needs_nothing_else() -> None:
    found = elf.symbols(compile_kernel(DOUBLED, Target.host(), "doubled").object)
    assert not found.undefined


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.9, 0.99])
def test_every_cut_is_noticed(image: bytes, share: float) -> None:
    with pytest.raises(elf.NotAnObject):
        elf.symbols(image[: int(len(image) * share)])


@pytest.mark.parametrize("position", range(4, 7))
def test_other_kinds_of_elf_are_refused(image: bytes, position: int) -> None:
    changed = bytearray(image)
    changed[position] ^= 3
    with pytest.raises(elf.NotAnObject, match="64-bit little-endian"):
        elf.symbols(bytes(changed))


def test_wild_offsets_are_noticed(image: bytes) -> None:
    for field in (40, 0x28):  # e_shoff
        changed = bytearray(image)
        changed[field : field + 8] = struct.pack("<Q", 2**63)
        with pytest.raises(elf.NotAnObject):
            elf.symbols(bytes(changed))


def test_any_changed_byte_gives_symbols_or_the_typed_error(image: bytes) -> None:
    for position in range(0, len(image), 3):
        changed = bytearray(image)
        changed[position] ^= 0xFF
        with contextlib.suppress(elf.NotAnObject):
            elf.symbols(bytes(changed))


def test_build_id_is_the_note_in_the_library() -> None:
    spec = importlib.util.find_spec("halide")
    assert spec is not None and spec.submodule_search_locations is not None
    path = Path(spec.submodule_search_locations[0], "lib64/libHalide.so")
    found = elf.build_id(str(path))
    assert found is not None and len(found) == 40
    # The note as the linker writes it: name size 4, id size 20, type 3, "GNU".
    with path.open("rb") as library:
        assert b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0" + bytes.fromhex(found) in library.read(1 << 16)


def test_build_id_of_something_else_is_none(tmp_path: Path, image: bytes) -> None:
    for content in (b"not an ELF file at all", image):
        path = tmp_path / "file"
        path.write_bytes(content)
        assert elf.build_id(str(path)) is None
