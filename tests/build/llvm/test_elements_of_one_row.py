"""Gathers from one row take its elements from where it begins, and hold the same ones."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from native_code import native_engine

import halide_backend
from halide_backend.build.llvm.gathered_rows import with_gathered_rows
from halide_backend.inspection.compiled import compile_for

LANES = 4


def module(sum_: str, narrow: str = "trunc nuw nsw", splat: str = "i32 %row") -> str:
    """out[i] = memory[`sum_` of %alike and the four indices %in], as Halide writes it."""
    rest, lines = "poison", []
    for lane in range(LANES):
        lines += [
            f"  %e{lane} = extractelement <4 x i32> %indices, i64 {lane}",
            f"  %w{lane} = sext i32 %e{lane} to i64",
            f"  %p{lane} = getelementptr inbounds float, ptr %memory, i64 %w{lane}",
            f"  %l{lane} = load float, ptr %p{lane}, align 4",
            f"  %v{lane} = insertelement <4 x float> {rest}, float %l{lane}, i64 {lane}",
        ]
        rest = f"%v{lane}"
    body = "\n".join(lines)
    return f"""
define void @f(ptr %memory, ptr %in, i32 %row, ptr %out) {{
entry:
  %wide = load <4 x i64>, ptr %in, align 8
  %clamped = call <4 x i64> @llvm.umin.v4i64(<4 x i64> %wide, <4 x i64> splat (i64 9))
  %few = {narrow} <4 x i64> %clamped to <4 x i32>
  %lane = insertelement <4 x i32> poison, {splat}, i64 0
  %alike = shufflevector <4 x i32> %lane, <4 x i32> poison, <4 x i32> zeroinitializer
  %indices = {sum_}
{body}
  store <4 x float> {rest}, ptr %out, align 4
  ret void
}}

declare <4 x i64> @llvm.umin.v4i64(<4 x i64>, <4 x i64>)
"""


def run(ir: str, row: int) -> np.ndarray:
    memory, out = np.arange(1000, dtype=np.float32), np.zeros(LANES, np.float32)
    indices = np.array([7, 0, 9, 1 << 40], np.int64)
    engine = native_engine(ir)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    # The rows lie around the middle, so that one may be subtracted.
    call(engine.get_function_address("f"))(memory[500:].ctypes.data, indices.ctypes.data, row, out.ctypes.data)
    return out


@pytest.mark.parametrize(
    ("sum_", "sign"),
    [
        ("add nsw <4 x i32> %few, %alike", 1),
        ("add nsw <4 x i32> %alike, %few", 1),
        ("or disjoint <4 x i32> %few, %alike", 1),
        ("or disjoint <4 x i32> %alike, %few", 1),
        ("sub nsw <4 x i32> %few, %alike", -1),
    ],
)
@pytest.mark.parametrize("row", [0, 64, -64])  # multiples of 16, of which the indices are parts
def test_the_row_is_added_to_the_base(sum_: str, sign: int, row: int) -> None:
    ir = module(sum_)
    rewritten = with_gathered_rows(ir)
    assert rewritten.count("getelementptr inbounds float, ptr %row0,") == LANES
    assert rewritten.count("zext nneg i32 %row0.") == LANES
    wanted = 500 + sign * row + np.array([7, 0, 9, 9], np.float32)
    np.testing.assert_array_equal(run(ir, row), wanted)
    np.testing.assert_array_equal(run(rewritten, row), wanted)


@pytest.mark.parametrize(
    ("sum_", "narrow"),
    [
        ("add nsw <4 x i32> %few, %alike", "trunc"),  # may be negative
        ("add nsw <4 x i32> %few, %alike", "trunc nsw"),
        ("mul nsw <4 x i32> %few, %alike", "trunc nuw nsw"),
        ("sub nsw <4 x i32> %alike, %few", "trunc nuw nsw"),  # falls as the index rises
    ],
)
def test_other_indices_are_left_alone(sum_: str, narrow: str) -> None:
    ir = module(sum_, narrow)
    assert with_gathered_rows(ir) == ir


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8])
@pytest.mark.parametrize("backwards", [False, True])
def test_gathers_along_rows(dtype: torch.dtype, backwards: bool) -> None:
    def gathered(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x.flip(0).gather(1, i) if backwards else x.gather(1, i)

    x = (torch.randn(23, 91, generator=torch.Generator().manual_seed(0)) * 50).to(dtype)
    i = torch.randint(0, 91, (23, 77), generator=torch.Generator().manual_seed(1))
    torch._dynamo.reset()
    halide_backend.reset_stats()
    compiled = compile_for("halide_backend", gathered)
    torch.testing.assert_close(compiled.call(x, i), gathered(x, i), rtol=0, atol=0)
    assert not compiled.delegated
    assert halide_backend.stats()["unfusing_reasons"] == {}
