"""Shuffles of scans that some lanes would not come to are refused."""

from __future__ import annotations

import pytest
from ptx_texts import kernel

from halide_backend.build.ptx.convergence import check_convergence
from halide_backend.build.ptx.instructions import parse
from halide_backend.errors import HalideCompileError

GUARDED = (
    "mov.u32 %r1, %tid.x;\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 bra $L;\nshfl.sync.up.b32 %r2, %r3, 1, 0, -1;\n$L:\nret;"
)


def check(*bodies: str) -> None:
    check_convergence(parse("".join(map(kernel, bodies))), "k")


@pytest.mark.parametrize(
    "own",
    [
        "mov.u32 %r1, %tid.x;",
        "mov.u32 %r9, %tid.x;\nld.global.nc.v2.b32 {%r8, %r1}, [%r9];",
        "ld.param.b32 %r1, [retval0];",
        "ld.local.b32 %r1, [%SP+4];",
    ],
    ids=["of the lane", "loaded", "returned", "its own memory"],
)
def test_a_branch_of_some_lanes_is_refused(own: str) -> None:
    with pytest.raises(HalideCompileError, match="not all lanes"):
        check(GUARDED.replace("mov.u32 %r1, %tid.x;", own))


@pytest.mark.parametrize(
    ("one", "other"),
    [("%tid.x", "%tid.y"), ("%tid.x", "%ctaid.x"), ("shfl.sync.up", "shfl.sync.bfly")],
)
def test_branches_of_all_lanes_and_other_shuffles_are_not(one: str, other: str) -> None:
    check(GUARDED.replace(one, other))


def test_branches_behind_the_last_shuffle_are_not() -> None:
    *begin, branch, shuffle, label, end = GUARDED.split("\n")
    check("\n".join([*begin, shuffle, branch, label, end]))


def test_kernels_of_a_module_are_looked_at_alone() -> None:
    branch = GUARDED.replace("shfl.sync.up.b32 %r2, %r3, 1, 0, -1;\n", "")
    check(branch, "shfl.sync.up.b32 %r2, %r3, 1, 0, -1;")


@pytest.mark.parametrize("own", ["%tid.x", "%tid.y"])
def test_a_loop_that_some_threads_leave_earlier_is_refused_around_an_exchange(own: str) -> None:
    loop = (
        f"mov.u32 %r1, {own};\n$L:\n{{\ncall.uni (retval0), halide_backend_put_word, (param0);\n}}\n"
        "setp.eq.s32 %p1, %r1, 0;\n@%p1 bra $L;\nret;"
    )
    with pytest.raises(HalideCompileError, match="not all lanes"):
        check(loop)
    check(loop.replace(own, "%ctaid.x"))
