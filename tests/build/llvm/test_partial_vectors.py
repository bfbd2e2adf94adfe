"""Stores of some lanes to the stack become whole ones where they fit, and no other does."""

from __future__ import annotations

import ctypes
import re

import pytest
import torch
from native_code import native_engine

import halide_backend
from halide_backend.build.llvm.partial_vectors import with_whole_stores
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

AVX512 = Target.named("avx512")
MASKED = "call void @llvm.masked.store.v8f32.p0"


def module(room: int, offset: int, pointer: str = "%place") -> str:
    """Clears `room` floats on the stack, stores lanes of %in from byte `offset` on under %mask, and copies all out."""
    return f"""
define void @f(ptr %in, ptr %mask, ptr %out) {{
  %array = alloca [{room} x float], align 32
  call void @llvm.memset.p0.i64(ptr %array, i8 0, i64 {4 * room}, i1 false)
  %place = getelementptr inbounds nuw i8, ptr %array, i64 {offset}
  %v = load <8 x float>, ptr %in, align 4
  %bytes = load <8 x i8>, ptr %mask, align 1
  %m = trunc <8 x i8> %bytes to <8 x i1>
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v, ptr nonnull {pointer}, i32 4, <8 x i1> %m)
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %array, i64 {4 * room}, i1 false)
  ret void
}}
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr captures(none), i32 immarg, <8 x i1>)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)
"""


def run(ir: str, lanes: list[bool], room: int) -> list[float]:
    engine = native_engine(ir)
    values = (ctypes.c_float * 8)(*range(1, 9))
    mask = bytes(lanes)
    out = (ctypes.c_float * room)()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    function(engine.get_function_address("f"))(ctypes.addressof(values), mask, ctypes.addressof(out))
    return list(out)


@pytest.mark.parametrize("lanes", [5 * [True] + 3 * [False], 8 * [False], 8 * [True], 4 * [False, True]], ids=str)
@pytest.mark.parametrize("offset", [0, 32])
def test_the_lanes_that_are_masked_out_are_kept(lanes: list[bool], offset: int) -> None:
    ir, changed = with_whole_stores(module(16, offset))
    assert changed and MASKED not in ir
    stored = [float(k + 1) if lane else 0.0 for k, lane in enumerate(lanes)]
    wanted = [0.0] * 16
    wanted[offset // 4 : offset // 4 + 8] = stored
    assert run(ir, lanes, 16) == wanted == run(module(16, offset), lanes, 16)


def test_a_vector_of_numbers_is_stored_whole() -> None:
    numbers = ", ".join(["float 0.0"] * 5 + ["float poison"] * 3)
    ir, changed = with_whole_stores(module(16, 0).replace("<8 x float> %v, ptr", f"<8 x float> <{numbers}>, ptr"))
    assert changed and MASKED not in ir
    assert run(ir, 5 * [True] + 3 * [False], 16) == [0.0] * 16


@pytest.mark.parametrize(
    "ir",
    [module(8, 4), module(15, 32), module(16, 0, "%out")],
    ids=["one element beyond", "partly beyond", "no array of its own"],
)
def test_what_may_lie_beyond_the_array_stays_masked(ir: str) -> None:
    assert with_whole_stores(ir) == (ir, False)


def one_vector(also: str = "") -> str:
    """Stores five lanes of %in in an array of one vector, with lines `also`, and copies the first four out."""
    mask = ", ".join(5 * ["i1 true"] + 3 * ["i1 false"])
    return f"""
define void @f(ptr %in, ptr %mask, ptr %out) {{
  %array = alloca [8 x float], align 32
  %behind = getelementptr inbounds nuw i8, ptr %array, i64 16
  %v = load <8 x float>, ptr %in, align 4
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v, ptr %array, i32 32, <8 x i1> <{mask}>)
{also}  %part = load <4 x float>, ptr %array, align 32
  %rest = load <4 x float>, ptr %behind, align 16
  %sum = fadd <4 x float> %part, %rest
  store <4 x float> %sum, ptr %out, align 4
  ret void
}}
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr captures(none), i32 immarg, <8 x i1>)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)
"""


def test_lanes_in_which_nothing_is_stored_otherwise_are_stored_too() -> None:
    ir, changed = with_whole_stores(one_vector())
    assert changed and MASKED not in ir and "partial" not in ir
    assert run(ir, [], 4) == [6.0, 8.0, 10.0, 12.0]


@pytest.mark.parametrize(
    "also",
    [
        "  store float 9.0, ptr %behind, align 4\n",
        "  call void @llvm.memset.p0.i64(ptr %array, i8 0, i64 32, i1 false)\n",
        "  store ptr %array, ptr %out, align 8\n",
    ],
    ids=["an element", "a call", "an address that leaves"],
)
def test_lanes_that_may_hold_something_are_kept(also: str) -> None:
    ir, changed = with_whole_stores(one_vector(also))
    assert changed and "partial.1.old" in ir and "select <8 x i1>" in ir


def element(place: int, type_: str = "float", value: str = "%e") -> str:
    """A vector of eight 1.0 on the stack, of which the element at byte `place` is stored anew and all is copied out."""
    ones = ", ".join(8 * ["float 1.0"])
    return f"""
define void @f(ptr %in, ptr %mask, ptr %out) {{
  %array = alloca [16 x float], align 64
  %other = getelementptr inbounds nuw i8, ptr %array, i64 32
  store <8 x float> <{ones}>, ptr %array, align 32
  store <8 x float> <{ones}>, ptr %other, align 32
  %place = getelementptr inbounds nuw i8, ptr %array, i64 {place}
  %e = load {type_}, ptr %in, align 4
  store {type_} {value}, ptr {"%array" if place == 0 else "%other" if place == 32 else "%place"}, align 4
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %array, i64 64, i1 false)
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)
"""


@pytest.mark.parametrize("place", [0, 32])
def test_an_element_is_the_first_of_its_vector(place: int) -> None:
    module = element(place).replace("%e = load float, ptr %in", "%e.old = load float, ptr %in")
    module = module.replace("  store float", "  %e = fadd float %e.old, 6.0\n  store float")
    ir, changed = with_whole_stores(module)
    assert changed and "store float" not in ir
    wanted = [1.0] * 16
    wanted[place // 4] = 7.0
    assert run(ir, [True], 16) == wanted == run(module, [True], 16)


@pytest.mark.parametrize("ir", [element(4), element(0, "i32"), element(0, "double")], ids=["apart", "i32", "double"])
def test_an_element_of_no_such_vector_stays_one(ir: str) -> None:
    assert with_whole_stores(ir) == (ir, False)


def test_a_name_counts_in_its_own_function_alone() -> None:
    other = module(8, 4).replace("@f", "@g").split("declare", maxsplit=1)[0]
    ir, changed = with_whole_stores(module(16, 0) + other)
    assert changed and len(re.findall(re.escape(MASKED), ir)) == 1


@pytest.mark.skipif(bool(AVX512.requires() - Target.host().requires()), reason="a processor without AVX-512")
@pytest.mark.parametrize("columns", [9, 13])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_a_short_row_shares_is_stored_whole(columns: int, dtype: torch.dtype) -> None:
    """Its sums read eight elements and the rest: of a masked store neither could be forwarded."""
    halide_backend.reset_stats()
    x = torch.randn(300, columns).to(dtype)
    compiled = compile_for("halide_backend", lambda x: x.softmax(-1), options={"halide_backend.target": "avx512"})
    torch.testing.assert_close(compiled(x), x.double().softmax(-1).to(dtype), rtol=2**-7, atol=1e-6)
    (record,) = halide_backend.records()
    assert not re.findall(r"vmov\w+\s+%zmm\d+, \S*\(%rsp\S*\) \{%k\d\}", record.assembly())


@pytest.mark.parametrize("columns", [17, 33, 37, 61, 127, 197])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32], ids=str)
def test_rows_with_a_tail(columns: int, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x = torch.randint(-9, 10, (67, columns)).to(dtype)
    options = {"cpu_backend": "halide_backend"}
    compiled = torch.compile(lambda x: (x.sum(-1), x.amax(-1), x.argmin(-1)), options=options)
    wanted = x.double()
    total, largest, place = compiled(x)
    assert torch.equal(total.double(), wanted.sum(-1).to(total.dtype).double())
    assert torch.equal(largest.double(), wanted.amax(-1))
    assert torch.equal(wanted.gather(1, place[:, None])[:, 0], wanted.amin(-1))
