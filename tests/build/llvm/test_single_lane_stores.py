"""The way around LLVM's fault in single-lane masked stores, and whether it is still needed."""

from __future__ import annotations

import ctypes

import pytest
import torch
from llvmlite import binding as llvm
from native_code import native_engine

from halide_backend.build.llvm.single_lane_stores import without_single_lane_stores

LANES = 16
STORE = f"llvm.masked.store.v{LANES}"


def module(narrow: str, wide: str, lane: int, lanes: int = 1) -> str:
    """Truncates sixteen wide integers and stores `lanes` of them from `lane` on."""
    on = [lane <= k < lane + lanes for k in range(LANES)]
    mask = ", ".join(f"i1 {'true' if k else 'false'}" for k in on)
    return f"""
define void @f(ptr %in, ptr %p) {{
  %v = load <{LANES} x {wide}>, ptr %in, align 4
  %t = trunc <{LANES} x {wide}> %v to <{LANES} x {narrow}>
  tail call void @{STORE}{narrow}.p0(<{LANES} x {narrow}> %t, ptr nonnull %p, i32 1, <{LANES} x i1> <{mask}>), !tbaa !0
  ret void
}}
declare void @{STORE}{narrow}.p0(<{LANES} x {narrow}>, ptr captures(none), i32 immarg, <{LANES} x i1>)
!0 = !{{!1, !1, i64 0}}
!1 = !{{!"data", !2, i64 0}}
!2 = !{{!"root"}}
"""


def stored(ir: str, narrow: int, wide: int) -> list[int]:
    """The bytes of the destination after running `ir` over the values -1, -2, ..., on a background of zeros."""
    engine = native_engine(ir)
    values = b"".join((-1 - k).to_bytes(wide // 8, "little", signed=True) for k in range(LANES))
    result = ctypes.create_string_buffer((LANES + 4) * narrow // 8)
    function = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p)(engine.get_function_address("f"))
    function(values, ctypes.addressof(result))
    return list(result.raw)


@pytest.mark.parametrize(("narrow", "wide"), [(8, 32), (16, 32), (8, 16), (32, 64), (16, 64)])
@pytest.mark.parametrize("lane", [0, 1, 7, 15])
def test_one_lane_writes_one_element(narrow: int, wide: int, lane: int) -> None:
    ir = without_single_lane_stores(module(f"i{narrow}", f"i{wide}", lane))
    assert "call void @llvm.masked.store" not in ir
    size = narrow // 8
    expected = [0] * ((LANES + 4) * size)
    value = (-1 - lane).to_bytes(size, "little", signed=True)
    expected[lane * size : (lane + 1) * size] = value
    assert stored(ir, narrow, wide) == expected


def test_a_store_as_llvm_prints_it() -> None:
    """LLVM 22 prints the alignment with the pointer: rows of 17 bfloat16 wrote beyond each one's end."""
    ir = without_single_lane_stores(str(llvm.parse_assembly(module("i16", "i32", 0))))
    assert "call void @llvm.masked.store" not in ir
    assert stored(ir, 16, 32) == [0xFF, 0xFF, *(2 * (LANES + 3) * [0])]


@pytest.mark.parametrize("columns", [17, 33, 49])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8], ids=str)
def test_what_is_transposed_writes_within_its_rows(columns: int, dtype: torch.dtype) -> None:
    torch._dynamo.reset()
    x = (torch.randn(columns, 63, generator=torch.Generator().manual_seed(3)) * 9).to(dtype)
    compiled = torch.compile(lambda x: (-x).t().contiguous(), options={"cpu_backend": "halide_backend"})
    assert torch.equal(compiled(x), (-x).t())


@pytest.mark.parametrize("lanes", [2, 3, 16])
def test_other_masks_are_left_alone(lanes: int) -> None:
    ir = module("i8", "i32", 0, lanes)
    assert without_single_lane_stores(ir) == ir
    expected = [(-1 - k) & 0xFF if k < lanes else 0 for k in range(LANES + 4)]
    assert stored(ir, 8, 32) == expected
