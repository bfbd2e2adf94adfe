"""float32 becomes bfloat16 by one instruction: where it is written, and that every bit is the same."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from torch import Tensor

import halide_backend
from halide_backend.build.llvm.bfloat16_conversions import integer_operations_are_rare, with_bfloat16_instructions
from halide_backend.build.llvm.rare_ranges import with_rare_ranges
from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for

AVX512 = Target.named("avx512")
BF16 = replace(AVX512, halide=f"{AVX512.halide}-avx512_zen4")
INSTRUCTION = "llvm.x86.avx512bf16.cvtneps2bf16"


def module(lanes: int, *, below_half: int = 32767, upper: str = "%upper", use: str = "") -> str:
    """The upper half of %x, rounded to nearest even; with another number or operand, another function."""
    floats, words = f"<{lanes} x float>", f"<{lanes} x i32>"
    return f"""
define <{lanes} x i16> @f({floats} %x, {words} %other, ptr %place) {{
entry:
  %words = bitcast {floats} %x to {words}
  %upper = lshr {words} %words, splat (i32 16)
  %is_number = fcmp ord {floats} %x, zeroinitializer
  %last = and {words} {upper}, splat (i32 1)
  %biased = add {words} %words, splat (i32 {below_half})
  %sum = add {words} %biased, %last
  %finite = lshr {words} %sum, splat (i32 16)
  %quiet = or {words} %upper, splat (i32 64)
  %rounded = select <{lanes} x i1> %is_number, {words} %finite, {words} %quiet
  {use}
  %r = trunc nuw {words} %rounded to <{lanes} x i16>
  ret <{lanes} x i16> %r
}}
"""


@pytest.mark.parametrize("lanes", [8, 16])
def test_the_instruction_is_behind_a_branch(lanes: int) -> None:
    ir = with_rare_ranges(with_bfloat16_instructions(module(lanes), BF16))
    assert len(re.findall(rf"call <{lanes} x bfloat> @{INSTRUCTION}\.{32 * lanes}\(<{lanes} x float> %x\)", ir)) == 1
    # The integer operations are in the block that is rarely reached.
    before, rare = ir.split("rare0:")
    assert "br i1 %rare0.any" in before and "i32 32767" not in before
    assert "i32 32767" in rare.split("rare0.rest:")[0]


def test_two_registers_are_converted_in_halves_behind_one_branch() -> None:
    ir = with_rare_ranges(with_bfloat16_instructions(module(32), BF16))
    assert len(re.findall(rf"call <16 x bfloat> @{INSTRUCTION}\.512\(<16 x float> ", ir)) == 2
    assert len(re.findall(r"br i1 %rare\d+\.any", ir)) == 1
    assert integer_operations_are_rare(ir)
    assert re.search(r"\.bits = bitcast <32 x i1> %\S+ to i32", ir)


def test_each_of_several_has_a_branch() -> None:
    """Rows of a few vectors are converted one after another, and none of them waits for another one."""
    head, body, tail = re.split(r"(?<=entry:\n)|(?=  ret )", module(16, use="store <16 x i16> %r, ptr %place"))
    body = body.replace("  store", "  %r = trunc nuw <16 x i32> %rounded to <16 x i16>\n  store", 1)
    body = body[: body.rindex("  %r = ")]
    several = "".join(re.sub(r"%(?!x\b|other\b|place\b)(\w+)", rf"%\g<1>{number}", body) for number in range(3))
    ir = with_rare_ranges(with_bfloat16_instructions(head + several + re.sub("%r", "%r0", tail), BF16))
    assert ir.count(f"call <16 x bfloat> @{INSTRUCTION}") == len(re.findall(r"br i1 %rare\d+\.any", ir)) == 3
    assert integer_operations_are_rare(ir)


def test_a_number_that_is_used_again_is_converted_once() -> None:
    use = "%again = shl <16 x i32> %rounded, splat (i32 16)\n  store <16 x i32> %again, ptr %place"
    ir = with_bfloat16_instructions(module(16, use=use), BF16)
    assert ir.count(f"call <16 x bfloat> @{INSTRUCTION}") == 1
    assert re.search(r"%again = shl nuw <16 x i32> %.*word.*, splat \(i32 16\)", ir)
    assert "i32 32767" in with_rare_ranges(ir).split("rare0:")[1]


@pytest.mark.parametrize(
    "ir",
    [module(16, below_half=32768), module(16, upper="%other"), module(4), module(64)],
    ids=["ties away from zero", "another last bit", "four lanes", "four registers"],
)
def test_other_roundings_stay(ir: str) -> None:
    assert with_bfloat16_instructions(ir, BF16) == ir


@pytest.mark.parametrize(("count", "converts"), [(32, True), (33, False)])
def test_many_of_them_stay_integer_operations(count: int, converts: bool) -> None:
    """Finding a branch for each takes time by the square of their number."""
    head, body, tail = re.split(r"(?<=entry:\n)|(?=  ret )", module(16))
    several = "".join(re.sub(r"%(?!x\b|other\b|place\b)(\w+)", rf"%\g<1>{number}", body) for number in range(count))
    ir = head + several + re.sub("%r", "%r0", tail)
    assert (with_bfloat16_instructions(ir, BF16) != ir) is converts


def test_what_gets_no_branch_is_found() -> None:
    """An operation that needs the integers as well keeps them out of the branch."""
    assert integer_operations_are_rare(with_rare_ranges(module(16)))
    ir = with_bfloat16_instructions(module(16), BF16)
    assert not integer_operations_are_rare(ir)
    assert integer_operations_are_rare(with_rare_ranges(ir))
    shared = module(16, use="store <16 x i32> %rounded, ptr %place")
    assert not integer_operations_are_rare(with_rare_ranges(with_bfloat16_instructions(shared, BF16)))


def test_processors_without_it_have_no_such_instruction() -> None:
    assert with_bfloat16_instructions(module(16), AVX512) == module(16)


def numbers() -> Tensor:
    """Every upper half with lower halves around a tie: denormal numbers, infinities and all NaNs among them; and, so
    that both sides of the branch run, each vector of them beside one without denormal numbers."""
    upper = torch.arange(1 << 16, dtype=torch.int64) << 16
    words = torch.cat([upper + low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).to(torch.int32)
    return torch.cat([words.view(torch.float32), torch.linspace(-3e38, 3e38, 4099)])


@pytest.mark.skipif("avx512_zen4" not in Target.host().halide, reason="a processor without AVX-512 BF16")
@pytest.mark.parametrize(
    ("again", "long"), [(False, False), (True, False), (False, True)], ids=["stored", "used again", "two registers"]
)
def test_every_bit_is_the_same(again: bool, long: bool) -> None:
    def rounded(x: Tensor) -> tuple[Tensor, ...]:
        # A long formula has vectors of two registers.
        x = torch.where(x.tanh() + x.sigmoid() < -9, 0.0, x) if long else x
        half = x.to(torch.bfloat16)
        return (half, half.float() * 2) if again else (half,)

    x, found = numbers(), []
    for target, converts in (("", True), ("avx512", False)):
        halide_backend.reset_stats()
        found.append(compile_for("halide_backend", rounded, options={"halide_backend.target": target})(x))
        (record,) = halide_backend.records()
        assert ("vcvtneps2bf16" in record.assembly()) is converts
    for ours, integer in zip(*found, strict=True):
        same = torch.int16 if ours.dtype is torch.bfloat16 else torch.int32
        assert torch.equal(ours.view(same), integer.view(same))
    finite = x.isnan().logical_not()
    assert torch.equal(found[0][0].view(torch.int16)[finite], x.to(torch.bfloat16).view(torch.int16)[finite])
