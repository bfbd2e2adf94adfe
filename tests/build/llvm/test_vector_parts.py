"""Parts of vectors that LLVM forwards as wide integers are shuffles of these vectors again."""

from __future__ import annotations

import ctypes

import pytest
from native_code import native_engine

from halide_backend.build.llvm.vector_parts import with_parts_as_shuffles


def module(part: int, type_: str = "float", lanes: int = 4) -> str:
    """Copies the quarter `part` of sixteen floats, as `lanes` elements of `type_`."""
    return f"""
define void @f(ptr %in, ptr %out) {{
  %v = load <16 x float>, ptr %in, align 4
  %bc = bitcast <16 x float> %v to <4 x i128>
  %part = extractelement <4 x i128> %bc, i64 {part}
  %q = bitcast i128 %part to <{lanes} x {type_}>
  store <{lanes} x {type_}> %q, ptr %out, align 4
  ret void
}}
"""


def run(ir: str) -> list[float]:
    engine = native_engine(ir)
    values, out = (ctypes.c_float * 16)(*range(16)), (ctypes.c_float * 4)()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("f"))
    function(ctypes.addressof(values), ctypes.addressof(out))
    return list(out)


@pytest.mark.parametrize("part", range(4))
def test_a_part_is_a_shuffle(part: int) -> None:
    ir = with_parts_as_shuffles(module(part))
    assert "shufflevector <16 x float> %v, <16 x float> poison, <4 x i32>" in ir
    assert run(ir) == run(module(part)) == [4.0 * part + lane for lane in range(4)]


@pytest.mark.parametrize(("type_", "lanes"), [("double", 2), ("i32", 4), ("i16", 8)])
def test_elements_of_another_type_stay(type_: str, lanes: int) -> None:
    assert with_parts_as_shuffles(module(1, type_, lanes)) == module(1, type_, lanes)


def test_an_integer_from_elsewhere_stays() -> None:
    ir = module(1).replace("%bc = bitcast <16 x float> %v to <4 x i128>", "%bc = load <4 x i128>, ptr %in, align 4")
    assert with_parts_as_shuffles(ir) == ir
