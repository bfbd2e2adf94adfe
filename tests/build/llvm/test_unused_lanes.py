"""Vectors that Halide loads from before the first element that is used: the lanes that are used, and no others."""

from __future__ import annotations

import ctypes
import itertools
import mmap

import numpy as np
import pytest
from native_code import native_engine

from halide_backend.build.llvm.unused_lanes import without_unused_lanes

TYPES = {"float": np.float32, "i16": np.int16, "i64": np.int64}


def module(type_: str, order: list[int], lanes: int, between: str = "", operand: str = "%v") -> str:
    """Stores the lanes `order` of a vector of `lanes` that is loaded, which `between` makes `operand` of."""
    mask, vector = ", ".join(f"i32 {lane}" for lane in order), f"<{lanes} x {type_}>"
    stored = f"<{len(order)} x {type_}>"
    return f"""
define void @f(ptr %in, ptr %out) {{
  %v = load {vector}, ptr %in, align 2
{between}
  %s = shufflevector {vector} {operand}, {vector} poison, <{len(order)} x i32> <{mask}>
  store {stored} %s, ptr %out, align 2
  ret void
}}
"""


def after_a_page(values: np.ndarray) -> tuple[mmap.mmap, int]:
    """Memory with `values` behind an inaccessible page, and their address."""
    memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    memory[mmap.PAGESIZE : mmap.PAGESIZE + values.nbytes] = values.tobytes()
    view = ctypes.c_char.from_buffer(memory)
    start = ctypes.addressof(view)
    del view
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    return memory, start + mmap.PAGESIZE


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("order", [[2, 1, 2, 3, 4, 5, 6, 7], [7, 6, 5, 4, 3, 4, 5, 6], [7, 7, 7, 7], [4, 6, 4, 6]])
@pytest.mark.parametrize("computed", [False, True])
def test_nothing_before_the_first_element_is_read(type_: str, order: list[int], computed: bool) -> None:
    zero = "0.0" if type_ == "float" else "0"
    splat = f"<{', '.join([f'{type_} {zero}'] * 8)}>"
    operation = "fadd" if type_ == "float" else "add"
    between = f"  %w = {operation} <8 x {type_}> %v, {splat}" if computed else ""
    ir = without_unused_lanes(module(type_, order, 8, between, "%w" if computed else "%v"))
    assert "load <8 x" not in ir
    values = np.arange(1, 9, dtype=TYPES[type_])
    first = min(order)
    memory, start = after_a_page(values[first:])
    result = np.zeros(len(order), dtype=TYPES[type_])
    engine = native_engine(ir)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("f"))
    function(start - first * values.itemsize, result.ctypes.data)
    assert result.tolist() == [lane + 1 for lane in order]
    memory.close()


@pytest.mark.parametrize("type_", TYPES)
def test_an_element_that_is_replaced_is_not_read(type_: str) -> None:
    """As the zeros that an average's first row begins with: with dynamic sizes it was read from before its tensor, a
    segmentation fault where that begins a page (random program 1111107)."""
    zero = "0.0" if type_ == "float" else "0"
    inserted = [
        f"  %i{k} = insertelement <8 x {type_}> %{f'i{k - 1}' if k else 'v'}, {type_} {zero}, i64 {k}" for k in (0, 1)
    ]
    ir = without_unused_lanes(module(type_, list(range(8)), 8, "\n".join(inserted), "%i1"))
    assert "load <8 x" not in ir
    values = np.arange(1, 9, dtype=TYPES[type_])
    memory, start = after_a_page(values[2:])
    result = np.zeros(8, dtype=TYPES[type_])
    engine = native_engine(ir)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(engine.get_function_address("f"))
    function(start - 2 * values.itemsize, result.ctypes.data)
    assert result.tolist() == [0, 0, 3, 4, 5, 6, 7, 8]
    memory.close()


@pytest.mark.parametrize("order", [[0, 2, 4, 6], [1, 3, 5, 7], [2, 5], [0, 1, 2, 3], [3, 2, 1, 0, 7]])
def test_lanes_between_strided_elements_stay(order: list[int]) -> None:
    """These are known to lie between two elements that are used."""
    ir = module("float", order, 8)
    assert without_unused_lanes(ir) == ir


def test_a_vector_with_other_uses_is_loaded_whole() -> None:
    ir = module("float", [2, 1, 2, 3], 8, "  store <8 x float> %v, ptr %out, align 2")
    assert without_unused_lanes(ir) == ir


def test_what_is_read_before_its_line_is_loaded_whole() -> None:
    """As LLVM prints a block that it has put before the one that comes to it."""
    text = module("float", [2, 1, 2, 3], 8)
    early = """  br label %begin
early:
  store <8 x float> %v, ptr %out, align 2
  ret void
begin:"""
    ir = text.replace("{\n", "{\n" + early + "\n", 1)
    assert without_unused_lanes(text) != text
    assert without_unused_lanes(ir) == ir


def test_a_value_that_is_used_twice_at_every_step_takes_no_longer_than_its_lines() -> None:
    """Each of 60 squares was followed along 2^60 ways: kernels of `log_ndtr` were never compiled."""
    names = ["%v", *(f"%w{step}" for step in range(60))]
    between = "\n".join(f"  {new} = fmul <8 x float> {old}, {old}" for old, new in itertools.pairwise(names))
    ir = without_unused_lanes(module("float", [2, 1, 2, 3], 8, between, names[-1]))
    assert "load <8 x" not in ir
