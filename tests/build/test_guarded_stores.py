"""Stores that depend on a mark: which one is found, and what it becomes."""

from __future__ import annotations

import re

import pytest

from halide_backend.build.guarded_stores import BEGUN, KEPT, Mark, with_guards
from halide_backend.errors import HalideCompileError

KEEP, BEGIN = f"{KEPT}32", f"{BEGUN}16"


def call(result: str) -> str:
    return f"\tld.param.b32 \t{result}, [retval0];"


def guarded(lines: list[str], marks: list[Mark]) -> str:
    return with_guards("\n".join(lines), {mark.result: mark for mark in marks}, "k")


def test_a_store_without_a_mark_stays() -> None:
    text = "\tst.global.b32 \t[%rd1], %r1;"
    assert guarded([text], []) == text


def test_a_marked_store_has_a_condition() -> None:
    text = guarded([call("%r2"), "\tst.global.b32 \t[%rd1], %r2;"], [Mark(KEEP, "%r9", "%r2")])
    assert "setp.ne.b32 kept, said, 0;" in text
    assert "mov.b32 said, %r9;" in text
    assert re.search(r"@kept st\.global\.b32 +\t?\[%rd1\], %r2;", text)


def test_the_mark_follows_words_that_are_joined_to_pairs() -> None:
    lines = [
        call("%r1"),
        call("%r2"),
        "\tcvt.u64.u32 \t%rd1, %r1;",
        "\tcvt.u64.u32 \t%rd2, %r2;",
        "\tshl.b64 \t%rd3, %rd2, 32;",
        "\tor.b64 \t%rd4, %rd3, %rd1;",
        "\tst.global.b64 \t[%rd9+8], %rd4;",
    ]
    text = guarded(lines, [Mark(BEGIN, "%r8", "%r1"), Mark(BEGIN, "%r8", "%r2")])
    # Four elements of 16 bits in 64: all of them, or as many as there are, but never the last one alone.
    assert "setp.ge.u32 whole, said, 4;" in text
    assert re.findall(r"setp\.gt\.u32 some, said, (\d);", text) == ["0", "1", "2"]
    assert re.findall(r"@some st\.global\.b16 \[(\S+)\]", text) == ["%rd9+8", "%rd9+10", "%rd9+12"]
    assert re.findall(r"shr\.b64 piece, %rd4, (\d+);", text) == ["0", "16", "32"]


def test_where_branches_were_merged_the_mark_beside_the_store_counts() -> None:
    lines = [
        call("%r1"),
        "\tbra.uni \t$L2;",
        "$L2:",
        call("%r2"),
        "\tst.global.v2.b32 \t[%rd1], {%r1, %r2};",
    ]
    text = guarded(lines, [Mark(BEGIN, "4", "%r1"), Mark(BEGIN, "%r7", "%r2")])
    assert "mov.b32 said, %r7;" in text


@pytest.mark.parametrize(
    "lines",
    [
        [call("%r1"), "\tadd.s32 \t%r2, %r1, 1;", "\tst.global.b32 \t[%rd1], %r2;"],
        [call("%r1"), "\tst.global.v2.b32 \t[%rd1], {%r1, %r5};"],
        [call("%r1"), "\tst.shared.b32 \t[%rd1], %r1;"],
        [call("%r1")],
    ],
    ids=["computed with", "beside an unmarked word", "in shared memory", "nowhere"],
)
def test_a_mark_that_goes_elsewhere_is_refused(lines: list[str]) -> None:
    with pytest.raises(HalideCompileError, match="not always stored"):
        guarded(lines, [Mark(KEEP, "%r9", "%r1")])
