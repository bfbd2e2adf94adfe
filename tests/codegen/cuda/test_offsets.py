"""What a kernel stores from within a tensor on, and where that has to begin."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from cuda_programs import TARGET, cuda_kernel_text
from kernel_values import CudaKernel

from halide_backend.build.compiler import compile_kernel
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Store, Value


def copy_of_columns(rows: int, columns: int, begin: int, dtype: str) -> LoopProgram:
    """Rows of two elements into a matrix, from column `begin` on, as the gradient of a circular padding has them."""
    row, column = Axis("x0", rows, rows), Axis("x1", 2, 2)
    values: list[Value] = []
    values.append(Value.of("load", dtype, (), Load("in_ptr0", row.symbol * 2 + column.symbol), values))
    index = row.symbol * columns + column.symbol + begin
    return LoopProgram(
        inputs=(Buffer("in_ptr0", dtype, rows * 2, 0, aligned=True),),
        sizes=(),
        outputs=(Buffer("out_ptr0", dtype, rows * columns, 1, aligned=True),),
        values=tuple(values),
        stores=(Store("out_ptr0", index, 0, Nest((row, column))),),
        checks=(),
        outer=(row, column),
    )


@pytest.mark.parametrize(
    ("dtype", "begin", "alignment"), [("float32", 98, 8), ("float32", 96, 16), ("bfloat16", 98, 4)]
)
def test_alignment(needs_intrinsics: Any, dtype: str, begin: int, alignment: int) -> None:
    """Words are stored where the tensor's memory is a multiple of 16: an offset in it is no multiple of more."""
    text = cuda_kernel_text(copy_of_columns(300, 100, begin, dtype))
    assert "_words[" in text
    manifest = compile_kernel(text, TARGET, "kernel_under_test").manifest
    (stored,) = (argument for argument in manifest["arguments"] if argument["name"] == "out_ptr0")
    assert stored["alignment"] == alignment and stored["offset"] % alignment == 0
    x, found = torch.randn(300, 2).to(getattr(torch, dtype)), torch.zeros(300, 100).to(getattr(torch, dtype))
    CudaKernel(text).on_tensors(x, found)
    assert torch.equal(found[:, begin : begin + 2], x) and found.count_nonzero() == x.count_nonzero()
