"""Stores that depend on a mark: which one is found, and what it becomes."""

from __future__ import annotations

import re

import pytest
from ptx_texts import call, kernel

from halide_backend.build.ptx.calls import PARTIAL, PREDICATED
from halide_backend.build.ptx.instructions import parse
from halide_backend.build.ptx.predicated_stores import with_predicated_stores
from halide_backend.errors import HalideCompileError

KEEP, BEGIN = f"{PREDICATED}32", f"{PARTIAL}16"


def mark(result: str, function: str, operand: str) -> str:
    return call(function, result, "%r99", operand).rstrip("\n")


def predicated(*lines: str) -> str:
    return str(with_predicated_stores(parse(kernel("\n".join(lines))), "k"))


def test_a_store_without_a_mark_stays() -> None:
    text = "\tst.global.b32 \t[%rd1], %r1;"
    assert predicated(text) == kernel(text)


def test_a_marked_store_has_a_condition() -> None:
    text = predicated(mark("%r2", KEEP, "%r9"), "\tst.global.b32 \t[%rd1], %r2; // a comment")
    assert "mov.b32 said_r2, %r9;" in text
    assert "setp.ne.b32 kept, said_r2, 0;" in text
    assert re.search(r"@kept st\.global\.b32 +\t?\[%rd1\], %r2; \}", text)


def test_the_mark_follows_words_that_are_joined_to_pairs() -> None:
    text = predicated(
        mark("%r1", BEGIN, "%r8"),
        mark("%r2", BEGIN, "%r8"),
        "\tcvt.u64.u32 \t%rd1, %r1;",
        "\tcvt.u64.u32 \t%rd2, %r2;",
        "\tshl.b64 \t%rd3, %rd2, 32;",
        "\tor.b64 \t%rd4, %rd3, %rd1;",
        "\tst.global.b64 \t[%rd9+8], %rd4;",
    )
    # Four elements of 16 bits in 64: all of them, or as many as there are, but never the last one alone.
    assert "setp.ge.u32 whole, said_rd4, 4;" in text
    assert re.findall(r"setp\.gt\.u32 some, said_rd4, (\d);", text) == ["0", "1", "2"]
    assert re.findall(r"@some st\.global\.b16 \[(\S+)\]", text) == ["%rd9+8", "%rd9+10", "%rd9+12"]
    assert re.findall(r"shr\.b64 piece, %rd4, (\d+);", text) == ["0", "16", "32"]


def test_the_mark_follows_both_halves_of_a_word() -> None:
    text = predicated(
        mark("%r1", KEEP, "%r9"),
        "\tcvt.u64.u32 \t%rd1, %r1;",
        "\tmov.b64 \t{%r2, %r3}, %rd1;",
        "\tst.global.b32 \t[%rd9], %r2;",
        "\tst.global.b32 \t[%rd9+4], %r3;",
    )
    assert text.count("@kept st.global.b32") == 2


def written_before_the_store(text: str, companion: str) -> list[str]:
    """What is said on the ways to a store, in the order of the text."""
    return re.findall(rf"mov\.b32 {companion}, ([^;]+);", text)


def test_both_branches_say_how_much_of_one_merged_store() -> None:
    """LLVM merged the ends of branches: the first way took the count of the second, a register with no value there."""
    text = predicated(
        mark("%r5", BEGIN, "4"),
        "\tbra.uni \t$L2;",
        "$L1:",
        mark("%r5", BEGIN, "%r7"),
        "$L2:",
        "\tst.global.v2.b32 \t[%rd1], {%r5, %r5};",
    )
    assert written_before_the_store(text, "said_r5") == ["4", "%r7"]
    assert "setp.ge.u32 whole, said_r5, 4;" in text


def test_what_is_said_is_copied_with_the_value() -> None:
    text = predicated(
        mark("%r1", KEEP, "%r8"),
        "\tmov.b32 \t%r5, %r1;",
        "\tbra.uni \t$L2;",
        "$L1:",
        mark("%r2", KEEP, "%r9"),
        "\tmov.b32 \t%r5, %r2;",
        "$L2:",
        "\tst.global.b32 \t[%rd1], %r5;",
    )
    assert written_before_the_store(text, "said_r5") == ["said_r1", "said_r2"]


def test_a_branch_that_says_nothing_stores_the_whole() -> None:
    text = predicated(
        "\tld.global.b32 \t%r5, [%rd2];",
        "\tbra.uni \t$L2;",
        "$L1:",
        mark("%r5", KEEP, "%r9"),
        "$L2:",
        "\tst.global.b32 \t[%rd1], %r5;",
    )
    assert written_before_the_store(text, "said_r5") == ["-1", "%r9"]


def test_kernels_of_a_module_have_registers_of_their_own() -> None:
    plain = kernel("\tmov.b32 \t%r1, 0;\n\tst.global.b32 \t[%rd1], %r1;", name="other")
    marked = kernel(mark("%r1", KEEP, "%r9") + "\n\tst.global.b32 \t[%rd1], %r1;")
    text = str(with_predicated_stores(parse(marked + plain), "k"))
    assert text.endswith(plain) and text.count("@kept") == 1


@pytest.mark.parametrize(
    "lines",
    [
        ["\tadd.s32 \t%r2, %r1, 1;", "\tst.global.b32 \t[%rd1], %r2;"],
        ["\tst.global.v2.b32 \t[%rd1], {%r1, %r5};"],
        ["\tst.shared.b32 \t[%rd1], %r1;"],
        ["\t@%p1 st.global.b32 \t[%rd1], %r1;"],
        [mark("%r1", BEGIN, "4"), "\tst.global.b32 \t[%rd1], %r1;"],
        [],
    ],
    ids=[
        "computed with",
        "beside an unmarked word",
        "in shared memory",
        "where it is predicated",
        "in part, too",
        "nowhere",
    ],
)
def test_a_mark_that_goes_elsewhere_is_refused(lines: list[str]) -> None:
    with pytest.raises(HalideCompileError, match="not always stored"):
        predicated(mark("%r1", KEEP, "%r9"), *lines)
