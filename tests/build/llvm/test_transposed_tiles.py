"""Transpositions in registers have as few shuffles as there can be, and still put every element in its place."""

from __future__ import annotations

import ctypes
import re

import pytest
import torch
from llvmlite import binding as llvm

import halide_backend
from halide_backend import config
from halide_backend.build.llvm.transposed_tiles import with_direct_transpositions
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

BYTES = {"i8": 1, "i16": 2, "float": 4, "double": 8}
TILES = [("i8", 16), ("i8", 32), ("i16", 8), ("i16", 16), ("i16", 32), ("float", 4), ("float", 8), ("float", 16)]
TILES += [("double", 4), ("double", 8), ("double", 16)]


def shuffle(result: str, vector: str, first: str, second: str, mask: list[int]) -> str:
    numbers = ", ".join(f"i32 {number}" for number in mask)
    return f"  %{result} = shufflevector {vector} %{first}, {vector} %{second}, <{len(mask)} x i32> <{numbers}>"


def perfect_shuffles(type_: str, side: int, *, skew: int = 0) -> str:
    """Reads `side` rows, transposes them by taking elements of two vectors in turns, and stores them.

    Number `skew` of the first step's vectors is made of other elements: no transposition any more if that is not 0.
    """
    vector, size = f"<{side} x {type_}>", side * BYTES[type_]
    lines, names = [], []
    for row in range(side):
        lines.append(f"  %p{row} = getelementptr inbounds i8, ptr %in, i64 {row * size}")
        lines.append(f"  %r{row} = load {vector}, ptr %p{row}, align 1")
        names.append(f"r{row}")
    for step in range(side.bit_length() - 1):
        new = []
        for row in range(side):
            start = side // 2 * (row % 2)
            mask = [start + lane // 2 + side * (lane % 2) for lane in range(side)]
            if skew and (step, row) == (0, skew):
                mask = mask[::-1]
            new.append(f"s{step}.{row}")
            lines.append(shuffle(new[-1], vector, names[row // 2], names[row // 2 + side // 2], mask))
        names = new
    for row, name in enumerate(names):
        lines.append(f"  %q{row} = getelementptr inbounds i8, ptr %out, i64 {row * size}")
        lines.append(f"  store {vector} %{name}, ptr %q{row}, align 1")
    body = "\n".join(lines)
    return f"define void @f(ptr %in, ptr %out) {{\nentry:\n{body}\n  ret void\n}}\n"


def machine(cpu: str = "") -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    host = Target.host()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu or host.cpu, features="" if cpu else host.features, opt=3, jit=not cpu
    )


def shuffles_in(assembly: str) -> int:
    return len(re.findall(r"^\s+v(?:unpck|punpck|shuf|perm|pshuf|insert|extract|blend)", assembly, re.MULTILINE))


def run(ir: str, tile: bytes) -> bytes:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(ir), machine())
    engine.finalize_object()
    out = ctypes.create_string_buffer(len(tile))
    function = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)
    function(engine.get_function_address("f"))(tile, ctypes.addressof(out))
    return out.raw


def tile_of(type_: str, side: int) -> tuple[bytes, bytes]:
    """Bytes of a tile without equal elements (but for those of one byte), and of its transpose."""
    tile = torch.randint(0, 256, (side, side, BYTES[type_]), dtype=torch.uint8)
    return tile.numpy().tobytes(), tile.transpose(0, 1).contiguous().numpy().tobytes()


@pytest.mark.parametrize(("type_", "side"), TILES, ids=str)
def test_a_tile_is_transposed(type_: str, side: int) -> None:
    before = perfect_shuffles(type_, side)
    after = with_direct_transpositions(before)
    assert "%tile.1" in after
    tile, wanted = tile_of(type_, side)
    assert run(before, tile) == wanted == run(after, tile)


@pytest.mark.parametrize(("cpu", "type_", "side"), [("x86-64-v4", "float", 16), ("x86-64-v3", "float", 8)], ids=str)
def test_as_many_instructions_as_the_network_has_shuffles(cpu: str, type_: str, side: int) -> None:
    assembly = machine(cpu).emit_assembly(
        llvm.parse_assembly(with_direct_transpositions(perfect_shuffles(type_, side)))
    )
    moving = re.findall(r"^\t(v(?:unpck|punpck|shuf|perm|pshuf|insert|extract|blend)\w+)", assembly, re.MULTILINE)
    assert len(moving) == side * (side.bit_length() - 1), assembly


def test_what_is_no_transposition_stays() -> None:
    for skew in (1, 15):
        ir = perfect_shuffles("float", 16, skew=skew)
        assert with_direct_transpositions(ir) == ir


def test_columns_of_longer_rows_stay() -> None:
    """The first four elements of each of four vectors of eight: no shuffle of the network has both lengths."""
    rows = [f"  %r{row} = load <8 x float>, ptr %in, align 1" for row in range(4)]
    columns = []
    for number in range(4):
        pairs = (
            shuffle(f"p{number}.{row}", "<8 x float>", f"r{row}", f"r{row + 1}", [number, number + 8]) for row in (0, 2)
        )
        whole = shuffle(f"c{number}", "<2 x float>", f"p{number}.0", f"p{number}.2", [0, 1, 2, 3])
        columns += [*pairs, whole, f"  store <4 x float> %c{number}, ptr %out, align 1"]
    body = "\n".join([*rows, *columns, "  ret void"])
    ir = f"define void @f(ptr %in, ptr %out) {{\nentry:\n{body}\n}}\n"
    llvm.parse_assembly(ir).verify()
    assert with_direct_transpositions(ir) == ir


def test_other_uses_of_a_column_are_renamed_with_it() -> None:
    """A name may begin with another one's."""
    ir = perfect_shuffles("float", 4).replace("ret void", "store <4 x float> %s1.1, ptr %in, align 1\n  ret void")
    ir = ir.replace("%s1.1 =", "%s1.10 = fneg <4 x float> %r0\n  %s1.1 =")
    after = with_direct_transpositions(ir)
    assert "store <4 x float> %tile.1.2.2, ptr %in" in after and "%s1.10 = fneg" in after
    llvm.parse_assembly(after).verify()


def test_columns_in_other_blocks_stay() -> None:
    """What is there in one block need not be in another."""
    ir = perfect_shuffles("float", 4).replace("  %s1.3 =", "  br label %next\n\nnext:\n  %s1.3 =")
    assert with_direct_transpositions(ir) == ir


@pytest.mark.parametrize("target", ["avx512", "avx2"])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.float32, torch.int64], ids=str)
def test_kernels_have_these_tiles(dtype: torch.dtype, target: str) -> None:
    if Target.named(target).requires() - Target.host().requires():
        pytest.skip("this processor lacks the instructions")
    torch._dynamo.reset()
    x = torch.randint(-99, 99, (5, 64, 96)).to(dtype)
    with config.patch(target=target):
        compiled = compile_for("halide_backend", lambda x: x.transpose(1, 2).contiguous())
        assert torch.equal(compiled(x), x.transpose(1, 2).contiguous())
    record = halide_backend.records()[-1]
    side = next(choice.setting for choice in record.plan.choices if choice.knob.name == "transposes.side")
    assert shuffles_in(record.assembly()) == side * (side.bit_length() - 1)
