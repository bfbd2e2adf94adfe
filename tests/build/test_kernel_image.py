"""Objects as one image: where it is mapped and what is filled in, the kernels compute what they say."""

from __future__ import annotations

import ctypes
import mmap

import pytest
from kernel_texts import ROW_SUMS

from halide_backend.build import elf
from halide_backend.build.compiler import compile_kernel
from halide_backend.build.kernel_image import kernel_image
from halide_backend.build.target import Target
from halide_backend.errors import LoadError

TEXT = ROW_SUMS.replace("total = total + lanes[lane, i]", "total = total + hl.sin(lanes[lane, i]) * 3.7")


@pytest.fixture(scope="module")
def objects() -> list[bytes]:
    kernels = {"rows": TEXT, "others": ROW_SUMS}
    return [compile_kernel(text, Target.host(), name, c_interface=True).object for name, text in kernels.items()]


def test_every_address_is_within_the_image_or_asked_for_by_name(objects: list[bytes]) -> None:
    image = kernel_image(objects)
    assert image.executed % mmap.PAGESIZE == 0 and 0 < image.executed < len(image.data)
    assert {name for name, _ in image.imports} == set().union(*(elf.symbols(each).undefined for each in objects))
    assert {"hb1_rows", "hb1_others", "rows_argv"} <= set(image.functions)
    written = [place for _, place in image.imports] + [place for place, _ in image.pointers]
    assert len(set(written)) == len(written)
    assert all(image.executed <= place <= len(image.data) - 8 and place % 8 == 0 for place in written)
    assert all(0 <= to < len(image.data) for _, to in image.pointers)
    assert all(0 <= place < image.executed for place in image.functions.values())


def test_an_import_is_called_through_its_word(objects: list[bytes]) -> None:
    """hb1_rows calls halide_backend_run with a body; a stand-in is called instead, and its result returned."""
    image = kernel_image(objects)
    memory = mmap.mmap(-1, len(image.data), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory[:] = image.data
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    bodies = []
    run_type = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

    def stand_in(body: int, closure: int, message: int) -> int:
        bodies.append(body - base)
        return 41 + len(bodies)

    callback = run_type(stand_in)
    for name, place in image.imports:
        if name == "halide_backend_run":
            memory[place : place + 8] = (ctypes.cast(callback, ctypes.c_void_p).value or 0).to_bytes(8, "little")
    call_type = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)
    results = [call_type(base + image.functions[f"hb1_{name}"])(None, None, None, None) for name in ("rows", "others")]
    assert results == [42, 43]
    assert bodies[0] != bodies[1] and all(0 < body < image.executed for body in bodies)


@pytest.mark.parametrize("change", ["cut", "nothing", "arm", "relocation"])
def test_what_is_no_such_object_is_refused(objects: list[bytes], change: str) -> None:
    first = bytearray(objects[0])
    if change == "cut":
        first = first[:200]
    elif change == "nothing":
        first = bytearray()
    elif change == "arm":
        first[18] = elf.AARCH64
    else:
        table = next(each for each in elf.sections(objects[0]) if each.kind == elf.RELOCATIONS)
        first[table.offset + 8] = 10  # R_X86_64_32
    with pytest.raises(LoadError, match="cannot become part of an image"):
        kernel_image([bytes(first)])
