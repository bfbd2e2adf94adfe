"""Vectors that are loaded element by element become permutations of what lies between, and hold the same elements."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
import torch
from llvmlite import binding as llvm

from halide_backend.build.llvm.code_generation import emit_object
from halide_backend.build.llvm.near_gathers import with_near_gathers
from halide_backend.build.llvm.two_runs import form_of
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

HOST = Target.host()
NUMPY = {"i16": np.int16, "i32": np.int32, "float": np.float32, "i64": np.int64, "double": np.float64}
#: Forms for which a processor with AVX-512 has an instruction.
FORMS = [("i16", 16), ("i16", 32), ("float", 8), ("float", 16), ("i32", 16), ("double", 8), ("i64", 8)]

needs_avx512 = pytest.mark.skipif(HOST.vector_bytes < 64, reason="permutes vectors of AVX-512")


def gather(type_: str, lanes: int, index: str, indices: str, between: str = "") -> str:
    """out[i] = memory[indices of vector i], for `count` vectors in a loop; `between` stands before the last load.

    Halide's form of it, with numbers for names.
    """
    vector, wide = f"<{lanes} x {type_}>", f"<{lanes} x {index}>"
    lines, number, rest = [], 4, "poison"
    for lane in range(lanes):
        lines.append(f"  %{number} = extractelement {wide} %indices, i64 {lane}")
        if index == "i32":
            lines.append(f"  %{number + 1} = sext i32 %{number} to i64")
            number += 1
        lines.append(f"  %{number + 1} = getelementptr inbounds {type_}, ptr %0, i64 %{number}")
        lines.append(between if lane == lanes - 1 else "")
        lines.append(f"  %{number + 2} = load {type_}, ptr %{number + 1}, align {np.dtype(NUMPY[type_]).itemsize}")
        lines.append(f"  %{number + 3} = insertelement {vector} {rest}, {type_} %{number + 2}, i64 {lane}")
        rest, number = f"%{number + 3}", number + 4
    body = "\n".join(line for line in lines if line)
    return f"""
define void @f(ptr %0, ptr %1, ptr %2, i64 %3) {{
entry:
  br label %loop

loop:                                             ; preds = %loop, %entry
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %place = getelementptr {wide}, ptr %1, i64 %i
{indices}
{body}
  %other = getelementptr {vector}, ptr %2, i64 %i
  store {vector} {rest}, ptr %other, align 1
  %next = add i64 %i, 1
  %end = icmp eq i64 %next, %3
  br i1 %end, label %done, label %loop

done:                                             ; preds = %loop
  ret void
}}
"""


def loaded_indices(lanes: int, index: str) -> str:
    return f"  %indices = load <{lanes} x {index}>, ptr %place, align 1"


def known_indices(lanes: int, index: str, constants: list[int]) -> str:
    """The first of the indices, plus constants."""
    wide = f"<{lanes} x {index}>"
    return f"""  %one = load {index}, ptr %place, align 1
  %lane = insertelement {wide} poison, {index} %one, i64 0
  %alike = shufflevector {wide} %lane, {wide} poison, <{lanes} x i32> zeroinitializer
  %indices = add nsw {wide} %alike, <{", ".join(f"{index} {c}" for c in constants)}>"""


def run(ir: str, memory: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Elements of `memory` at `indices`, a row for each vector."""
    code = emit_object(f'target triple = "{llvm.get_default_triple()}"\n{ir}', HOST, "f")
    loaded = load_object(code, "f", {})
    found = np.zeros(indices.shape, memory.dtype)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function(loaded.address)(memory.ctypes.data, indices.ctypes.data, found.ctypes.data, len(indices))
    return found


def orders(lanes: int) -> np.ndarray:
    """Indices of vectors, near and far, that begin and end where memory does."""
    steps, size = np.arange(lanes), 40 * lanes
    near = [steps, np.maximum(steps - 1, 0), steps // 2, steps // 3, steps * 2, np.minimum(steps * 2, 2 * lanes - 3)]
    near += [np.abs(steps - 2), steps[::-1], steps * 0, np.roll(steps, 1), steps * 3, steps ^ 1, (steps * 7) % lanes]
    near += [np.append(steps[:-1] * 2, 2 * lanes), np.append(steps[:-1] * 2, 2 * lanes - 1), np.append(steps[1:], 0)]
    rows = [shift + order for order in near for shift in (0, 5, size - 1 - int(np.max(order)))]
    return np.array([*rows, np.random.default_rng(0).integers(0, size, lanes)])


@needs_avx512
@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize(("type_", "lanes"), FORMS)
def test_elements_are_the_same_near_and_far(type_: str, lanes: int, index: str) -> None:
    indices = orders(lanes)
    memory = np.arange(40 * lanes).astype(NUMPY[type_])
    ir = gather(type_, lanes, index, loaded_indices(lanes, index))
    rewritten = with_near_gathers(ir, HOST)
    assert "@llvm.x86." in rewritten
    np.testing.assert_array_equal(run(rewritten, memory, indices.astype(NUMPY[index])), memory[indices])


@needs_avx512
@pytest.mark.parametrize(("type_", "lanes"), [("float", 8), ("float", 16), ("i16", 16), ("i16", 32)])
def test_elements_in_any_order_are_permuted(type_: str, lanes: int) -> None:
    """Those of a reflected row fall and rise, those of one that is enlarged three times are a third of a vector."""
    steps, memory = np.arange(lanes), np.arange(40 * lanes).astype(NUMPY[type_])
    near = np.array([steps // 3, steps // 4, np.abs(steps - 3), lanes - np.abs(steps - 3), steps[::-1], steps ^ 1])
    rewritten = with_near_gathers(gather(type_, lanes, "i32", loaded_indices(lanes, "i32")), HOST)
    alone = rewritten.replace(f"[ %near0.v{lanes - 1}, ", "[ zeroinitializer, ")
    assert alone != rewritten
    np.testing.assert_array_equal(run(alone, memory, near.astype(np.int32)), memory[near])


@needs_avx512
@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize(("type_", "lanes"), FORMS)
def test_two_runs_far_from_each_other_are_two_loads(type_: str, lanes: int, index: str) -> None:
    """As where a rolled row begins anew, from the first place of memory up to the last."""
    steps, memory = np.arange(lanes), np.arange(40 * lanes).astype(NUMPY[type_])
    far = [np.where(steps < k, steps + 39 * lanes + (lanes - k), steps - k) for k in range(1, lanes)]
    far += [np.where(steps < k, steps, steps + 39 * lanes) for k in range(1, lanes + 1)]
    rewritten = with_near_gathers(gather(type_, lanes, index, loaded_indices(lanes, index)), HOST)
    assert rewritten.count("@llvm.masked.load.") == 3
    alone = rewritten.replace(f"[ %near0.v{lanes - 1}, ", "[ zeroinitializer, ")
    assert alone != rewritten
    indices = np.array(far)
    np.testing.assert_array_equal(run(alone, memory, indices.astype(NUMPY[index])), memory[indices])


@needs_avx512
def test_masked_loads_are_as_halide_declares_them() -> None:
    memory = np.arange(640).astype(np.float32)
    indices = np.where(np.arange(16) < 3, np.arange(16) + 600, np.arange(16))[None]
    own = "declare <16 x float> @llvm.masked.load.v16f32.p0(ptr, i32 immarg, <16 x i1>, <16 x float>)"
    rewritten = with_near_gathers(f"{gather('float', 16, 'i32', loaded_indices(16, 'i32'))}\n{own}\n", HOST)
    assert rewritten.count("declare <16 x float> @llvm.masked.load") == 1
    np.testing.assert_array_equal(run(rewritten, memory, indices.astype(np.int32)), memory[indices])


@pytest.mark.parametrize(("type_", "lanes"), [("i16", 8), ("float", 4), ("float", 16), ("double", 8), ("i32", 32)])
def test_known_distances_need_no_branch(type_: str, lanes: int) -> None:
    memory = np.arange(40 * lanes).astype(NUMPY[type_])
    for order in orders(lanes)[:-1]:
        constants = [int(c) for c in order - order[0]]
        ir = gather(type_, lanes, "i32", known_indices(lanes, "i32", constants))
        rewritten = with_near_gathers(ir, HOST)
        span = max(constants) - min(constants)
        near = 3 <= span < 2 * lanes
        assert ("%near0.low = load" in rewritten) == near, constants
        assert rewritten.count("extractelement") == (1 if near else lanes)
        assert rewritten.count("br i1") == 1
        np.testing.assert_array_equal(run(rewritten, memory, order[None].astype(np.int32)), memory[order][None])


def shifted_indices(lanes: int, index: str, operator: str) -> str:
    """The indices of the first vector, and a multiple of the vector's number more or less."""
    wide = f"<{lanes} x {index}>"
    return f"""  %small = trunc i64 %i to i32
  %number = {"sext i32 %small to i64" if index == "i64" else "mul i32 %small, 1"}
  %many = mul {index} %number, 3
  %lane = insertelement {wide} poison, {index} %many, i64 0
  %alike = shufflevector {wide} %lane, {wide} poison, <{lanes} x i32> zeroinitializer
  %moved = {operator} {wide} %distances, %alike
  %indices = add {wide} %moved, splat ({index} -2)"""


@needs_avx512
@pytest.mark.parametrize("operator", ["add", "sub"])
@pytest.mark.parametrize("index", ["i32", "i64"])
@pytest.mark.parametrize(("type_", "lanes"), FORMS)
def test_distances_that_stay_are_found_out_before_the_loop(type_: str, lanes: int, index: str, operator: str) -> None:
    memory = np.arange(60 * lanes).astype(NUMPY[type_])
    ir = gather(type_, lanes, index, shifted_indices(lanes, index, operator))
    ir = ir.replace(
        "  br label %loop\n", f"  %distances = load <{lanes} x {index}>, ptr %1, align 1\n  br label %loop\n", 1
    )
    rewritten = with_near_gathers(ir, HOST)
    before, loop = rewritten.split("\nloop:")
    assert before.count("near0.outside =") == 1 and "near0.outside =" not in loop
    for order in orders(lanes):
        rows = order + (40 if operator == "sub" else 2) + np.arange(8)[:, None] * (3 if operator == "add" else -3)
        distances = np.tile(rows[0], (len(rows), 1)).astype(NUMPY[index])
        np.testing.assert_array_equal(run(rewritten, memory, distances), memory[rows - 2])


@needs_avx512
def test_vectors_with_the_same_distances_are_looked_at_once() -> None:
    lanes, indices = 16, orders(16)
    memory = np.arange(44 * lanes).astype(np.float32)
    ir = gather("float", lanes, "i32", loaded_indices(lanes, "i32"))
    body = ir[ir.index("  %4 =") : ir.index("  %other =")]
    last = re.findall(r"%\d+ = insertelement", body)[-1].split()[0]
    other = re.sub(r"%(\d+)", lambda name: name[0] if int(name[1]) < 4 else f"%b{name[1]}", body)
    moved = "  %moved = add <16 x i32> %indices, splat (i32 7)\n"
    both = f"{body}{moved}{other.replace('%indices', '%moved')}  %sum = fsub <16 x float> %b{last[1:]}, {last}\n"
    ir = ir.replace(body, both).replace(f"store <16 x float> {last}", "store <16 x float> %sum")
    rewritten = with_near_gathers(ir, HOST)
    # Each has halves and quarters of a vector, from the first element on and from the least one.
    assert rewritten.count("near0.outside =") == 1
    assert rewritten.count(" = call <16 x i32> @llvm.x86.avx512.permvar") == 8
    np.testing.assert_array_equal(run(rewritten, memory, indices.astype(np.int32)), np.full(indices.shape, 7.0))


@needs_avx512
@needs_avx512
def test_what_a_kernel_loads_is_not_compared() -> None:
    """A column of a table that data choose is anywhere, but what is computed from floats may be a picture's pixel."""
    before = gather("float", 16, "i32", f"{loaded_indices(16, 'i32')}, !tbaa !0")
    assert with_near_gathers(before, HOST) == before
    computed = loaded_indices(16, "float").replace("%indices", "%pixels") + ", !tbaa !0"
    computed += "\n  %indices = fptosi <16 x float> %pixels to <16 x i32>"
    assert "near0.outside =" in with_near_gathers(gather("float", 16, "i32", computed), HOST)


def test_what_is_declared_already_is_not_declared_again() -> None:
    declaration = "declare i32 @llvm.vector.reduce.smax.v16i32(<16 x i32>) #1"
    ir = f"{gather('float', 16, 'i32', loaded_indices(16, 'i32'))}\n{declaration}\nattributes #1 = {{ nounwind }}\n"
    rewritten = with_near_gathers(ir, HOST)
    llvm.parse_assembly(rewritten).verify()
    assert rewritten.count("declare i32 @llvm.vector.reduce.smax") == 1


@needs_avx512
def test_nothing_outside_of_the_elements_is_read() -> None:
    # The elements lie at the end of a page behind which there is none, and at the begin of one.
    lanes, page = 16, 4096
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    start = libc.mmap(None, 3 * page, 3, 0x22, -1, 0)
    for outside in (start, start + 2 * page):
        assert libc.mprotect(outside, page, 0) == 0
    memory = np.ctypeslib.as_array((ctypes.c_float * (page // 4)).from_address(start + page))
    memory[:] = np.arange(page // 4)
    indices = orders(lanes)
    last = indices - indices.max(axis=1, keepdims=True) + page // 4 - 1
    first = indices - indices.min(axis=1, keepdims=True)
    rewritten = with_near_gathers(gather("float", lanes, "i32", loaded_indices(lanes, "i32")), HOST)
    for here in (last[:-1], first[:-1]):
        np.testing.assert_array_equal(run(rewritten, memory, here.astype(np.int32)), memory[here])


@pytest.mark.parametrize(
    "ir",
    [
        # A store comes between the loads, so that they may not change places.
        gather("float", 16, "i32", loaded_indices(16, "i32"), between="  store float 1.0, ptr %0, align 4"),
        # No instruction permutes such vectors.
        gather("float", 4, "i32", loaded_indices(4, "i32")),
        # Elements from two places in memory.
        gather("float", 16, "i32", loaded_indices(16, "i32")).replace("ptr %0, i64 %25", "ptr %1, i64 %25"),
        # More indices than elements.
        gather("float", 16, "i32", loaded_indices(32, "i32")).replace(
            "extractelement <16 x i32>", "extractelement <32 x i32>"
        ),
        # Elements in another order than their indices.
        gather("float", 16, "i32", loaded_indices(16, "i32")).replace("%indices, i64 3", "%indices, i64 4"),
    ],
)
def test_what_is_no_such_vector_stays(ir: str) -> None:
    llvm.parse_assembly(ir).verify()
    assert with_near_gathers(ir, HOST) == ir


def test_other_processors_keep_what_needs_their_instructions() -> None:
    narrow, wide = (gather("float", lanes, "i32", loaded_indices(lanes, "i32")) for lanes in (8, 16))
    assert with_near_gathers(wide, Target.named("avx2")) == wide
    assert "@llvm.x86.avx2.permd" in with_near_gathers(narrow, Target.named("avx2"))
    for name in ("sse41", "arm64", "riscv64"):
        assert with_near_gathers(narrow, Target.named(name)) == narrow


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_enlarged_image_is_eagers(dynamic: bool) -> None:
    x = torch.randn(2, 3, 29, 37)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)

    compiled = compile_for("halide_backend", f, dynamic=dynamic)
    torch.testing.assert_close(compiled(x), f(x.double()).float())


@pytest.mark.parametrize("alignment", ["", "i32 immarg, "])
def test_masked_loads_are_called_as_they_are_declared(alignment: str) -> None:
    """Rounding has a number as an argument as well, which said that the alignment was one (random program 1120163)."""
    rounding = "declare <8 x float> @llvm.x86.avx.round.ps.256(<8 x float>, i32 immarg)"
    load = f"declare <8 x float> @llvm.masked.load.v8f32.p0(ptr captures(none), {alignment}<8 x i1>, <8 x float>)"
    assert form_of(f"{rounding}\n{load}\n") == ("ptr, i32, " if alignment else "ptr, ")
