"""Vectors on the stack that a loop adds to are in registers while it runs, and no others are."""

from __future__ import annotations

import ctypes
import re

import pytest
import torch
from native_code import native_engine

import halide_backend
from halide_backend.build.llvm.loop_accumulators import with_accumulators_in_registers
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

AVX512 = Target.named("avx512")


def module(inside: str = "", exit_: str = "end", entry: str = "br label %loop") -> str:
    """Sums nine vectors of eight floats of %in in an array on the stack, with lines `inside` the loop."""
    return f"""
define void @f(ptr %in, ptr %out) {{
entry:
  %array = alloca [16 x float], align 32
  %place = getelementptr inbounds nuw i8, ptr %array, i64 32
  call void @llvm.memset.p0.i64(ptr %array, i8 0, i64 64, i1 false)
  {entry}

loop:                                             ; preds = %loop, %entry
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr inbounds [8 x float], ptr %in, i64 %i
  %row = load <8 x float>, ptr %from, align 4
  %sum = load <8 x float>, ptr %place, align 32
  %more = fadd <8 x float> %sum, %row
{inside}  store <8 x float> %more, ptr %place, align 32
  %next = add nuw nsw i64 %i, 1
  %done = icmp eq i64 %next, 9
  br i1 %done, label %{exit_}, label %loop

end:                                              ; preds = %loop{", %entry" if "i1" in entry else ""}
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %array, i64 64, i1 false)
  ret void
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1 immarg)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg)
"""


def run(ir: str) -> list[float]:
    engine = native_engine(ir)
    values, out = (ctypes.c_float * 72)(*range(72)), (ctypes.c_float * 16)()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("f"))
    function(ctypes.addressof(values), ctypes.addressof(out))
    return list(out)


def test_the_loop_neither_loads_nor_stores_its_sum() -> None:
    ir = with_accumulators_in_registers(module())
    loop = ir[ir.index("\nloop:") : ir.index("\naccumulator.1.end:")]
    assert "%place" not in loop and "phi <8 x float>" in loop
    assert run(ir) == run(module()) == [0.0] * 8 + [float(sum(range(lane, 72, 8))) for lane in range(8)]


MASKED = {
    "%sum = load <8 x float>, ptr %place, align 32": "%sum = tail call <8 x float> @llvm.masked.load.v8f32.p0("
    "ptr align 32 %place, <8 x i1> %some, <8 x float> REST)",
    "store <8 x float> %more, ptr %place, align 32": "tail call void @llvm.masked.store.v8f32.p0("
    "<8 x float> %more, ptr align 32 %place, <8 x i1> %some)",
}


def masked(rest: str, inside: str = "") -> str:
    """The module, whose loop loads and stores two lanes of its sum, and has `rest` in the others."""
    ir = module(inside)
    for whole, some in MASKED.items():
        ir = ir.replace(whole, some.replace("REST", rest))
    mask = f"icmp sge <8 x i32> splat (i32 1), <{', '.join(f'i32 {lane}' for lane in range(8))}>"
    return f"""{ir.replace("entry:", f"entry:{chr(10)}  %some = {mask}")}
declare <8 x float> @llvm.masked.load.v8f32.p0(ptr captures(none), <8 x i1>, <8 x float>)
declare void @llvm.masked.store.v8f32.p0(<8 x float>, ptr captures(none), <8 x i1>)
"""


@pytest.mark.parametrize("rest", ["poison", "zeroinitializer"])
def test_neither_do_some_lanes_of_it(rest: str) -> None:
    ir = with_accumulators_in_registers(masked(rest))
    loop = ir[ir.index("\nloop:") : ir.index("\naccumulator.1.end:")]
    assert "%place" not in loop and "phi <8 x float>" in loop and ("select" in loop) == (rest != "poison")
    assert run(ir) == run(masked(rest)) == [0.0] * 8 + [float(sum(range(lane, 72, 8))) for lane in (0, 1)] + [0.0] * 6


def test_others_may_lead_behind_the_loop() -> None:
    ir = module(entry="%none = icmp eq ptr %in, null\n  br i1 %none, label %end, label %loop")
    mine = with_accumulators_in_registers(ir)
    assert "%place" not in mine[mine.index("\nloop:") : mine.index("\naccumulator.1.end:")]
    assert run(mine) == run(ir) == [0.0] * 8 + [float(sum(range(lane, 72, 8))) for lane in range(8)]


def test_an_array_on_the_heap_is_as_good() -> None:
    ir = module().replace(
        "%array = alloca [16 x float], align 32", "%array = tail call ptr @halide_malloc(ptr null, i64 64)"
    )
    mine = with_accumulators_in_registers(ir)
    assert "%place" not in mine[mine.index("\nloop:") : mine.index("\naccumulator.1.end:")]


@pytest.mark.parametrize(
    "ir",
    [
        module("  store float 1.0, ptr %array, align 32\n"),
        module("  call void @llvm.memset.p0.i64(ptr %array, i8 0, i64 64, i1 false)\n"),
        module("  %other = load <4 x float>, ptr %place, align 16\n"),
        masked("poison", "  %other = icmp eq i64 %i, 0\n").replace("<8 x i1> %some, <8", "<8 x i1> %another, <8"),
        module().replace("%place = getelementptr", "%any = getelementptr").replace(
            "  br label %loop\n", "  %place = select i1 true, ptr %any, ptr %array\n  br label %loop\n"
        ),
        module().replace("%array = alloca [16 x float], align 32", "%array = getelementptr i8, ptr %out, i64 0"),
    ],
    ids=["a store besides", "a call", "another load", "another mask", "an unknown place", "not on the stack"],
)  # fmt: skip
def test_what_else_may_touch_the_array_stays_in_memory(ir: str) -> None:
    assert with_accumulators_in_registers(ir) == ir


@pytest.mark.skipif(bool(AVX512.requires() - Target.host().requires()), reason="a processor without AVX-512")
def test_the_last_column_of_a_sum_is_added_in_a_register() -> None:
    halide_backend.reset_stats()
    x = torch.randn(60, 91, 113)
    options = {"halide_backend.target": "avx512"}
    result = compile_for("halide_backend", lambda x: x.sum(1), options=options)(x)
    torch.testing.assert_close(result, x.double().sum(1).float(), rtol=1e-5, atol=1e-5)
    (record,) = halide_backend.records()
    assert re.findall(r"vaddps\s+%zmm\d+, %zmm\d+, %zmm\d+ \{%k\d\}", record.assembly())
