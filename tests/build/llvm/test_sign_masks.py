"""The way around LLVM's fault in signs of vectors in registers beyond the first 16, and whether it is still needed."""

from __future__ import annotations

import ctypes
import re

import pytest

from halide_backend.build.llvm.code_generation import emit_assembly, emit_object
from halide_backend.build.llvm.sign_masks import misread
from halide_backend.build.loader import load_object
from halide_backend.build.target import Target

#: Lanes and bits of an element, and the feature whose instruction makes the mask.
VECTORS = [(2, 64, "avx512dq"), (4, 64, "avx512dq"), (4, 32, "avx512dq"), (8, 32, "avx512dq"), (16, 8, "avx512bw")]

FEATURES = "+avx512f,+avx512vl,+avx512bw,+avx512dq"
AVX512 = Target("x86-64-linux-avx-avx2-avx512-avx512_skylake-f16c-fma-sse41", "skylake-avx512", FEATURES)


def module(lanes: int, bits: int, register: int) -> str:
    """Of a vector in the register of this number: x if its first two elements are negative, y if only the second is,
    else 7."""
    vector, wide = f"<{lanes} x i{bits}>", "y" if lanes * bits > 128 else "x"
    return f"""
target triple = "x86_64-unknown-linux-gnu"
define i32 @signs(ptr %in, i32 %x, i32 %y) #0 {{
  %v = load {vector}, ptr %in, align 1
  %w = tail call {vector} asm sideeffect "", "={{{wide}mm{register}}},0"({vector} %v)
  %m = icmp slt {vector} %w, zeroinitializer
  %first = extractelement <{lanes} x i1> %m, i64 0
  %second = extractelement <{lanes} x i1> %m, i64 1
  %a = select i1 %first, i32 %x, i32 %y
  %b = select i1 %second, i32 %a, i32 7
  ret i32 %b
}}
attributes #0 = {{ "target-cpu"="skylake-avx512" "target-features"="{FEATURES}" }}
"""


@pytest.mark.parametrize(("lanes", "bits", "feature"), VECTORS)
def test_the_fault_is_still_there(lanes: int, bits: int, feature: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the way around can go."""
    monkeypatch.setattr("halide_backend.build.llvm.code_generation.misread", lambda code: [])
    code, text = (emit(module(lanes, bits, 17), AVX512, "signs") for emit in (emit_object, emit_assembly))
    assert misread(code) == misread(text) == [feature]


@pytest.mark.parametrize(("lanes", "bits", "feature"), VECTORS)
def test_signs_in_any_register(lanes: int, bits: int, feature: str) -> None:
    for register in (3, 9, 17, 31):
        code, text = (emit(module(lanes, bits, register), AVX512, "signs") for emit in (emit_object, emit_assembly))
        assert misread(code) == misread(text) == []
        # Where nothing is wrong the shorter instruction stays.
        assert bool(re.search(r"v\w*movmsk", text)) == (register < 16)
        if set(FEATURES.split(",")) <= set(Target.host().features.split(",")):
            loaded = load_object(code, "signs", {})
            call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_int)(loaded.address)
            for first, second, expected in ((-1, -2, 1), (3, -2, 2), (-1, 2, 7), (3, 2, 7)):
                values = (first, second, *[-5] * (lanes - 2))
                assert (
                    call(b"".join(each.to_bytes(bits // 8, "little", signed=True) for each in values), 1, 2) == expected
                )
