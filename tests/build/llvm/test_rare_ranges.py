"""The rare sides of selects are behind a branch: what moves there, and that every bit is the same."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from llvmlite import binding as llvm

from halide_backend.build import compiler
from halide_backend.build.llvm.code_generation import emit_object
from halide_backend.build.llvm.rare_ranges import with_rare_ranges
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target

HOST = Target.host()
LANES = 16
COUNT = 5


def module(bound: str = "1.310720e+05", operations: int = 9, also: str = "zeroinitializer") -> str:
    """out[i] = |x[i]| > bound ? |x[i]| * 3**operations : |x[i]| + `also`, five vectors in a loop.

    The first operation of the rare side is the other side's `also`, if that is %r1. Values have numbers for names.
    """
    vector = f"<{LANES} x float>"
    rare = "".join(
        f"  %r{i} = fmul {vector} %{'r' + str(i - 1) if i else 3}, splat (float 3.0)\n" for i in range(operations)
    )
    return f"""
define void @f(ptr %0, ptr %1) {{
entry:
  br label %loop

loop:                                             ; preds = %loop, %entry
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %place = getelementptr {vector}, ptr %0, i64 %i
  %2 = load {vector}, ptr %place, align 4
  %3 = call {vector} @llvm.fabs.v{LANES}f32({vector} %2)
{rare}  %common = fadd {vector} %3, {also}
  %mask = fcmp ogt {vector} %3, splat (float {bound})
  %4 = select <{LANES} x i1> %mask, {vector} %r{operations - 1}, {vector} %common
  %other = getelementptr {vector}, ptr %1, i64 %i
  store {vector} %4, ptr %other, align 4
  %next = add i64 %i, 1
  %5 = icmp eq i64 %next, {COUNT}
  br i1 %5, label %end, label %loop

end:                                              ; preds = %loop
  ret void
}}

declare {vector} @llvm.fabs.v{LANES}f32({vector})

attributes #0 = {{ nounwind }}
!7 = !{{!"a node"}}
"""


def run(ir: str, x: np.ndarray) -> np.ndarray:
    code = emit_object(f'target triple = "{llvm.get_default_triple()}"\n{ir}', HOST, "f")
    loaded = load_object(code, "f", {})
    found = np.empty_like(x)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded.address)(x.ctypes.data, found.ctypes.data)
    return found


def block(ir: str, name: str) -> str:
    return ir.split(f"\n{name}:", 1)[1].split("\n\n", 1)[0]


def test_what_only_the_rare_side_needs_is_behind_a_branch() -> None:
    ir = with_rare_ranges(module())
    assert re.findall(r"%r\d+(?= = fmul)", ir) == re.findall(r"%r\d+(?= = fmul)", block(ir, "rare0"))
    assert "fadd" in block(ir, "loop")
    assert "store" in block(ir, "rare0.rest")
    assert "br i1 %rare0.any, label %rare0, label %rare0.rest, !prof !8" in block(ir, "loop")
    assert ir.count("!8 = ") == 1


def test_what_the_other_side_needs_too_stays() -> None:
    ir = with_rare_ranges(module(operations=12, also="%r1"))
    assert re.findall(r"%(r\d+) = fmul", block(ir, "loop")) == ["r0", "r1"]
    assert re.findall(r"%(r\d+) = fmul", block(ir, "rare0")) == [f"r{i}" for i in range(2, 12)]


@pytest.mark.parametrize("ir", [module(operations=7), module("0x4120000000000000")], ids=["few", "another bound"])
def test_other_selects_stay(ir: str) -> None:
    assert with_rare_ranges(ir) == ir


@pytest.mark.parametrize("also", ["zeroinitializer", "%r1"])
def test_values_are_the_same(also: str) -> None:
    """Vectors without an element in the range, with one, with all, and with what is no number."""
    x = np.random.default_rng(1).uniform(-100, 100, (COUNT, LANES)).astype(np.float32)
    x[1, 3], x[2], x[3, 0], x[4, 15] = 1e7, -3e6, np.nan, 2.0**20
    ir = module(operations=10, also=also)
    found = run(with_rare_ranges(ir), x)
    size = np.abs(x)
    common = size + (size * np.float32(3) * np.float32(3) if also == "%r1" else 0)
    np.testing.assert_allclose(found, np.where(size > 2**17, size * 3.0**10, common), rtol=1e-6)
    np.testing.assert_array_equal(found.view(np.int32), run(ir, x).view(np.int32))


_SINE = """
import halide as hl
from halide_backend.kernel_library import mathematics
from halide_backend.kernel_library.arguments import Input, Output

ARGUMENTS = (Input("x", "float32", 64), Output("s", "float32", ((64, 1),)), Output("c", "float32", ((64, 1),)))

def pipeline():
    i = hl.Var("i")
    x = hl.ImageParam(hl.Float(32), 1, "x")
    outputs = []
    for name, function in (("s", mathematics.sin), ("c", mathematics.cos)):
        out = hl.Func(name)
        out[i] = function(x[i])
        out.bound(i, 0, 64).vectorize(i, LANES)
        outputs.append(out)
    outputs[1].compute_with(outputs[0], i)
    return [x], outputs
"""


_REMAINDER = """
import halide as hl
from halide_backend.kernel_library import mathematics
from halide_backend.kernel_library.arguments import Input, Output

ARGUMENTS = (Input("x", "float32", 64), Input("y", "float32", 64), Output("r", "float32", ((64, 1),)))

def pipeline():
    i = hl.Var("i")
    x, y = hl.ImageParam(hl.Float(32), 1, "x"), hl.ImageParam(hl.Float(32), 1, "y")
    r = hl.Func("r")
    r[i] = mathematics.fmod(x[i], y[i])
    r.bound(i, 0, 64).vectorize(i, LANES)
    return [x, y], [r]
"""


@pytest.mark.parametrize("level", ["sse41", "avx2", "avx512"])
def test_sines_of_large_arguments_are_behind_a_branch(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One branch for each sine and cosine of the same vector, and none of their multiplications twice."""
    seen = []
    monkeypatch.setattr(compiler, "with_rare_ranges", lambda ir: seen.append(ir) or with_rare_ranges(ir))
    lanes = {"sse41": 4, "avx2": 8, "avx512": 16}[level]
    compiler.compile_kernel(_SINE.replace("LANES", str(lanes)), Target.named(level), "kernel")
    (before,) = seen
    after = with_rare_ranges(before)
    assert len(re.findall(r"^rare\d+:", after, re.MULTILINE)) > 0
    # A bit of 2/pi that matters for the largest numbers alone.
    late = "0x3B0ABE8FA9000000"
    assert late in before
    assert all(late not in part for part in after.split("\n\n") if not re.match(r"rare\d+:", part.strip()))


@pytest.mark.parametrize("level", ["avx2", "avx512"])
def test_remainders_of_large_quotients_are_behind_a_branch(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where four of five divisions are, those of squares modulo the divisor."""
    seen = []
    monkeypatch.setattr(compiler, "with_rare_ranges", lambda ir: seen.append(ir) or with_rare_ranges(ir))
    text = _REMAINDER.replace("LANES", str({"avx2": 8, "avx512": 16}[level]))
    compiler.compile_kernel(text, Target.named(level), "kernel")
    (before,) = seen
    divisions = {
        part.partition(":")[0].strip(): part.count("= fdiv ") for part in with_rare_ranges(before).split("\n\n")
    }
    rare = sum(count for name, count in divisions.items() if re.fullmatch(r"rare\d+", name))
    assert rare == 4 and sum(divisions.values()) == before.count("= fdiv ") == 5, divisions
