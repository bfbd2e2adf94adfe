"""Stores of addends become additions: of vectors where there is such an instruction, of parts of a word where there is
none for less."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from ptx_texts import call, kernel

from halide_backend.build.ptx import ptxas
from halide_backend.build.ptx.atomics import with_atomics
from halide_backend.build.ptx.calls import ADDEND, without_calls
from halide_backend.build.ptx.instructions import parse
from halide_backend.errors import HalideCompileError


def _marked(kind: str, count: int) -> str:
    """Calls that mark the registers %r0, %r1 ... as addends of `kind`."""
    bits = 64 if "64" in kind else 32
    return "".join(call(f"{ADDEND}{kind}", f"%r{k}", f"%r{k}", bits=bits) for k in range(count))


def _added(capability: str, kind: str, *places: str, before: str = "") -> str:
    """The stores of marked registers at `places`, as additions."""
    bits = re.sub(r"_(v|again)\d", "", kind).lstrip("ubf")
    stores = [f"\tst.global.b{bits} \t[{place}], %r{k};" for k, place in enumerate(places)]
    text = kernel(_marked(kind, len(places)) + f"\n{before}".join(stores) + "\n\tret;")
    return str(with_atomics(parse(text), capability, "k"))


def _assembled(capability: str, text: str) -> bool:
    """Whether the assembler takes the additions."""
    begin = (
        ".param .u64 p\n)\n{\n.reg .b64 %rd<9>; .reg .b32 %r<9>;\nld.param.u64 %rd1, [p]; "
        "cvta.to.global.u64 %rd1, %rd1;\n"
    )
    (function,) = parse(text).functions
    done = str(replace(function, statements=without_calls(function.statements))).replace("k(\n)\n{\n", "k(\n" + begin)
    return ptxas.find() is None or ptxas.assemble(done, capability, "k")[:4] == b"\x7fELF"


def test_neighbours_are_joined() -> None:
    text = _added("sm_90", "f32_v2", "%rd1", "%rd1+4", "%rd1+8", "%rd1+12")
    assert text.count("red.relaxed.gpu.global.add.v2.f32") == 2
    assert "[%rd1+0], {%r0, %r1}" in text and "[%rd1+8], {%r2, %r3}" in text
    assert ".target sm_90" in text and ".version 8.1" in text
    assert _assembled("sm_90", text)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("count", [2, 4])
def test_neighbours_of_16_bits_are_joined(kind: str, count: int) -> None:
    text = _added("sm_90", f"{kind}_v{count}", *(f"%rd1+{6 + 2 * k}" for k in range(count)))
    assert text.count(f"red.relaxed.gpu.global.add.noftz.v{count}.{kind} \t[%rd1+6], {{half0, half1") == 1
    assert text.count("cvt.u16.u32") == count and "st.global" not in text
    assert _assembled("sm_90", text)


def test_others_are_not() -> None:
    for places in (("%rd1", "%rd2+4"), ("%rd1", "%rd1+8"), ("%rd1",)):
        text = _added("sm_90", "f32_v2", *places)
        assert text.count("red.global.add.f32 ") == len(places)
    text = _added("sm_90", "bf16_v4", "%rd1", "%rd1+2", "%rd1+4")
    assert text.count("red.global.add.noftz.bf16 ") == 3


def test_an_older_gpu_adds_one_at_a_time() -> None:
    text = _added("sm_80", "f32_v2", "%rd1", "%rd1+4")
    assert "\tred.global.add.f32 \t[%rd1], %r0;\n\tred.global.add.f32 \t[%rd1+4], %r1;" in text
    assert text.startswith(".version 7.1\n.target sm_80\n")
    text = _added("sm_86", "f16_v4", *(f"%rd1+{2 * k}" for k in range(4)))
    assert text.count("red.global.add.noftz.f16 ") == 4
    assert _assembled("sm_86", text)


def test_nothing_is_joined_across_a_branch() -> None:
    assert ".v2." not in _added("sm_90", "f32_v2", "%rd1", "%rd1+4", before="$L__BB0_1:\n")


def test_two_to_one_place_are_added_as_their_sum() -> None:
    places = ("%rd1", "%rd2+4", "%rd3", "%rd2+8")
    for again, pairs in ((1, ((0, 1), (2, 3))), (2, ((0, 2), (1, 3)))):
        text = _added("sm_90", f"f32_again{again}", *places)
        assert text.count("red.global.add.f32 ") == 4 and text.count("@!same red.") == 2
        for first, second in pairs:
            assert f"add.rn.f32 sum, %r{first}, %r{second};" in text
            assert f"selp.b32 sum, sum, %r{first}, same;" in text and f"[other], %r{second};" in text
        assert "add.s64 other, %rd2, 8;" in text
        assert _assembled("sm_90", text)


def test_one_without_another_is_added_alone() -> None:
    text = _added("sm_90", "f32_again2", "%rd1", "%rd2", "%rd3")
    assert text.count("red.global.add.f32 ") == 3 and text.count("@!same") == 1
    assert "same" not in _added("sm_90", "f32_again3", "%rd1", "%rd2", "%rd3")
    assert "same" not in _added("sm_90", "f32_again1", "%rd1", "%rd2", before="$L__BB0_1:\n")


@pytest.mark.parametrize(
    ("kind", "capability", "bits"), [("u8", "sm_90", 8), ("u16", "sm_90", 16), ("bf16", "sm_80", 16)]
)
def test_parts_of_a_word_are_swapped(kind: str, capability: str, bits: int) -> None:
    text = _added(capability, kind, "%rd1+6", "%rd1")
    assert text.count("atom.relaxed.gpu.global.cas.b32 old, [word], seen, sum;") == 2
    # Only so many bits of the word change, and each loop has its own label.
    assert text.count(f"bfi.b32 sum, sum, seen, place, {bits};") == 2
    assert "add.s64 word, %rd1, 6;" in text and "red." not in text and "st.global" not in text
    assert _assembled(capability, text)


@pytest.mark.parametrize("places", [(), ("%rd1", "%rd2")])
def test_an_addend_goes_into_one_store(places: tuple[str, ...]) -> None:
    text = kernel(_marked("f16", 1) + "\n".join(f"\tst.global.b16 \t[{place}], %r0;" for place in places))
    with pytest.raises(HalideCompileError, match=f"an addend is stored {len(places)} times"):
        with_atomics(parse(text), "sm_90", "k")
