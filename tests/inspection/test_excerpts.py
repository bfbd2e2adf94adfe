"""Excerpts of machine code: which lines they keep, and that the rest is counted."""

from __future__ import annotations

import pytest

from halide_backend.inspection.excerpts import excerpt, inner_loops, instructions, ptx_excerpt

ASSEMBLY = """\
kernel:
\txorl\t%eax, %eax
.LBB0_1:
\txorl\t%ecx, %ecx
.LBB0_2:
\tvaddps\t(%rsi,%rcx), %zmm0, %zmm0
\tjne\t.LBB0_2
\tvmovaps\t%zmm0, (%rdi)
\tje\t.LBB0_9
\tjl\t.LBB0_1
.LBB0_3:
\tvmulps\t%zmm0, %zmm0, %zmm0
\tjb\t.LBB0_3
.LBB0_9:
\tretq
"""

PTX = """\
.version 7.1
.visible .entry kernel(
\t.param .u64 kernel_param_0
)
.maxntid 32, 1, 1
{
\t.reg .b32 \t%r<9>;

// %bb.0:
\tld.param.b64 \t%rd1, [kernel_param_0];
\tld.global.b32 \t%r1, [%rd1];
$L__BB0_1:
\tshfl.sync.bfly.b32 \t%r2, %r1, 16, 31, -1;   // exchange
\tmax.f32 \t%r1, %r1, %r2;
\tshfl.sync.bfly.b32 \t%r2, %r1, 8, 31, -1;
\tmax.f32 \t%r1, %r1, %r2;
\tneg.f32 \t%r3, %r1;
\tabs.f32 \t%r3, %r3;
\tsub.f32 \t%r3, %r3, %r1;
\tmul.f32 \t%r3, %r3, %r1;
\tex2.approx.f32 \t%r4, %r3;
\tadd.f32 \t%r4, %r4, %r4;
\tneg.f32 \t%r4, %r4;
\tadd.f32 \t%r4, %r4, %r4;
\tshfl.sync.bfly.b32 \t%r5, %r4, 16, 31, -1;
\tadd.f32 \t%r5, %r5, %r4;
\trcp.approx.ftz.f32 \t%r6, %r5;
\tmul.f32 \t%r7, %r6, %r4;
\tabs.f32 \t%r7, %r7;
\tadd.s64 \t%rd2, %rd1, 4;
\tst.global.b32 \t[%rd2], %r7;
\tret;
}
"""


def test_loops_around_other_loops_are_left_out() -> None:
    first, second = inner_loops(ASSEMBLY)
    assert first == [".LBB0_2:", "\tvaddps\t(%rsi,%rcx), %zmm0, %zmm0", "\tjne\t.LBB0_2"]
    assert second == [".LBB0_3:", "\tvmulps\t%zmm0, %zmm0, %zmm0", "\tjb\t.LBB0_3"]


def test_an_excerpt_counts_what_it_leaves_out() -> None:
    lines = list("abcdefg")
    assert excerpt(lines, [range(1, 2), range(2, 3), range(5, 7)], "#") == ["b", "c", "# 2 more", "f", "g"]
    assert excerpt(lines, [], "#") == []


def test_instructions_are_neither_directives_nor_labels_nor_comments() -> None:
    found = instructions(PTX)
    assert len(found) == 22
    assert found[0].startswith("ld.param")
    assert found[2] == "shfl.sync.bfly.b32 \t%r2, %r1, 16, 31, -1;"
    assert found[-1] == "ret;"


def test_the_excerpt_of_ptx_has_the_first_of_each_part() -> None:
    shown = [line.split()[0] if not line.startswith("//") else line for line in ptx_excerpt(PTX)]
    assert shown == [
        *("ld.global.b32", "shfl.sync.bfly.b32", "max.f32", "shfl.sync.bfly.b32", "max.f32", "// 2 more"),
        *("sub.f32", "mul.f32", "ex2.approx.f32", "add.f32", "// 1 more", "add.f32", "shfl.sync.bfly.b32", "add.f32"),
        *("rcp.approx.ftz.f32", "mul.f32", "// 1 more", "add.s64", "st.global.b32"),
    ]


def test_another_kernel_has_no_such_excerpt() -> None:
    with pytest.raises(ValueError, match="ex2"):
        ptx_excerpt(PTX.replace("ex2", "rcp"))
