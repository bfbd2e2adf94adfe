"""Additions to adjacent numbers become one instruction, where there is one."""

from __future__ import annotations

from halide_backend.build.vector_additions import MARKED, with_vector_additions

_HEAD = ".version 7.1\n.target sm_86\n"


def _additions(*places: str) -> str:
    return _HEAD + "\n".join(f"\t{MARKED} \t[{place}], %r{k};" for k, place in enumerate(places))


def test_neighbours_are_joined() -> None:
    text = with_vector_additions(_additions("%rd1", "%rd1+4", "%rd1+8", "%rd1+12"), "sm_90")
    assert text.count("red.relaxed.gpu.global.add.v2.f32") == 2
    assert "[%rd1+0], {%r0, %r1}" in text and "[%rd1+8], {%r2, %r3}" in text
    assert ".target sm_90" in text and ".version 8.1" in text


def test_others_are_not() -> None:
    for places in (("%rd1", "%rd2+4"), ("%rd1", "%rd1+8"), ("%rd1",)):
        text = with_vector_additions(_additions(*places), "sm_90")
        assert text.count("red.global.add.f32 ") == len(places)


def test_an_older_gpu_adds_one_at_a_time() -> None:
    text = with_vector_additions(_additions("%rd1", "%rd1+4"), "sm_80")
    assert text == _additions("%rd1", "%rd1+4").replace(MARKED, "red.global.add.f32")


def test_nothing_is_joined_across_a_branch() -> None:
    first, second = (f"\t{MARKED} \t[%rd1+{4 * k}], %r{k};" for k in range(2))
    text = with_vector_additions(f"{_HEAD}{first}\n$L__BB0_1:\n{second}", "sm_90")
    assert ".v2." not in text
