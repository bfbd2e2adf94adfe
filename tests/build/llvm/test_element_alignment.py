"""No access of a kernel promises more than the alignment of an element."""

from __future__ import annotations

import re

import pytest

from halide_backend.build import compiler
from halide_backend.build.llvm.element_alignment import with_element_alignment
from halide_backend.build.target import Target

# The first row is loaded from memory that the kernel also stores to, so Halide boosts the load.
SCATTER = """
import halide as hl
from halide_backend.kernel_library import memory
from halide_backend.kernel_library.arguments import Input, Output
from halide_backend.schedule.apply import apply
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import Reorder, Split, Vectorize

ARGUMENTS = (
    Input(name="values", dtype="float32", extent=7 * 63),
    Output(name="out", dtype="float32", dims=((63, 1), (1, 63)), offset=0, extent=0),
)

def pipeline():
    x, row = hl.Var("x"), hl.Var("row")
    values = memory.source(ARGUMENTS[0])
    out = hl.Func("out")
    r = hl.RDom([(0, 7)], "r")
    out[x, row] = hl.undef(hl.Float(32))
    out[x, 0] = hl.Expr(out[x, 0]) + values[63 * r[0] + x]
    memory.target(out, [x, row], [(63, 1), (1, 63)])
    steps = (
        Split("out", "x", "x_outer", "x_lanes", 8, update=0),
        Vectorize("out", "x_lanes", update=0),
        Reorder("out", ("x_lanes", "r$x", "x_outer"), update=0),
    )
    loops = (Loop("x", 63, "x"), Loop("row", 1, "row"))
    stage = Stage("out", Role.SCATTER, loops, updates=(Loop("r$x", 7, "r"),))
    apply(steps, {"out": out}, StageGraph((stage,), ()))
    return [values], [out]
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  %1 = load <8 x float>, ptr %2, align 32, !tbaa !1", 4),
        ('  %"a b" = load <8 x float>, ptr %2, align 32', 4),
        ("  %1 = load float, ptr %2, align 32", 4),
        ("  %1 = load <4 x half>, ptr %2, align 1", 1),
        ("  store <8 x double> %1, ptr getelementptr (i8, ptr @x, i64 8), align 64", 8),
        ("  store i8 0, ptr %2, align 16, !tbaa !1", 1),
        ("  %3 = call <8 x half> @llvm.masked.load.v8f16.p0(ptr nonnull %2, i32 16, <8 x i1> %m, <8 x half> %z)", 2),
        ("  call void @llvm.masked.store.v8i32.p0(<8 x i32> %1, ptr %2, i32 32, <8 x i1> %m), !tbaa !1", 4),
    ],
)
def test_an_access_promises_an_element(before: str, after: int) -> None:
    number = r"(?<=align )\d+|(?<=i32 )\d+(?=, <)"
    assert with_element_alignment(before) == re.sub(number, str(after), before)


@pytest.mark.parametrize("other", ["  %1 = load ptr, ptr %2, align 8", "  %1 = alloca <8 x float>, align 32"])
def test_what_is_no_access_to_elements_stays(other: str) -> None:
    assert with_element_alignment(other) == other


@pytest.mark.parametrize("level", ["sse41", "avx2", "avx512"])
def test_a_loop_that_adds_to_an_output(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written = []
    monkeypatch.setattr(compiler, "with_element_alignment", lambda ir: written.append(ir) or with_element_alignment(ir))
    compiler.compile_kernel(SCATTER, Target.named(level), "scatter")
    accesses = re.compile(r"(?:load|store) <\d+ x float>[^\n]*, align (\d+)")
    assert max(map(int, accesses.findall(written[0]))) > 4, "Halide promises no more than an element here any more"
    assert {int(n) for n in accesses.findall(with_element_alignment(written[0]))} == {4}
