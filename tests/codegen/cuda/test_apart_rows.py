"""Lines whose rows are apart in memory, as those of a batch norm are: a thread has a chunk of each row in registers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from cuda_programs import TARGET, checked, ptx_of
from kernel_values import CudaKernel

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Number, Reduction, Store, Value
from halide_backend.schedule.device import device_of
from halide_backend.schedule.tiling import TilingKind

DEVICE = device_of(TARGET)


def normalised(rows: int, channels: int, pixels: int, dtype: str) -> LoopProgram:
    """A batch norm of pictures in channels-first without weights, which of its results are positive, and its mean."""
    channel, row, pixel = Axis("x0", channels, channels), Axis("x1", rows, rows), Axis("x2", pixels, pixels)
    index = channels * pixels * row.symbol + pixels * channel.symbol + pixel.symbol
    of_channel, everywhere = frozenset({"x0"}), frozenset({"x0", "x1", "x2"})
    line, points = (row, pixel), float(rows * pixels)
    values = (
        Value("load", dtype, (), Load("in_ptr0", index), everywhere),
        Value("to_dtype", "float32", (0,), None, everywhere),
        Value("reduction", "float32", (1,), Reduction("sum", line), of_channel),
        Value("constant", "float32", (), Number.of(points), frozenset()),
        Value("truediv", "float32", (2, 3), None, of_channel),
        Value("sub", "float32", (1, 4), None, everywhere),
        Value("square", "float32", (5,), None, everywhere),
        Value("reduction", "float32", (6,), Reduction("sum", line), of_channel),
        Value("truediv", "float32", (7, 3), None, of_channel),
        Value("constant", "float32", (), Number.of(1e-5), frozenset()),
        Value("add", "float32", (8, 9), None, of_channel),
        Value("rsqrt", "float32", (10,), None, of_channel),
        Value("mul", "float32", (5, 11), None, everywhere),
        Value("to_dtype", dtype, (12,), None, everywhere),
        Value("constant", "float32", (), Number.of(0.0), frozenset()),
        Value("gt", "bool", (5, 14), None, everywhere),
    )
    whole, once = Nest((channel, *line)), Nest((channel,))
    stores = (
        Store("out_ptr0", index, 13, whole),
        Store("out_ptr1", index, 15, whole),
        Store("out_ptr2", channel.symbol, 4, once),
    )
    size = rows * channels * pixels
    return LoopProgram(
        inputs=(Buffer("in_ptr0", dtype, size, 0, aligned=True),),
        sizes=(),
        outputs=(
            Buffer("out_ptr0", dtype, size, 1, aligned=True),
            Buffer("out_ptr1", "bool", size, 2, aligned=True),
            Buffer("out_ptr2", "float32", channels, 3, aligned=True),
        ),
        values=values,
        stores=stores,
        checks=(),
        outer=(channel,),
    )


@pytest.mark.parametrize(
    ("rows", "channels", "pixels", "threads"),
    [
        (4, 16, 16, {"float32": 4, "bfloat16": 2}),
        (3, 5, 40, {"float32": 16, "bfloat16": 8}),  # ten chunks, or five; five channels do not fill the warps
        (2, 3, 200, {"float32": 64, "bfloat16": 32}),
        (4, 2, 49, {"float32": 64, "bfloat16": 64}),  # single elements
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values(
    rows: int, channels: int, pixels: int, threads: dict[str, int], dtype: torch.dtype, needs_intrinsics: None
) -> None:
    name = str(dtype).removeprefix("torch.")
    program = normalised(rows, channels, pixels, name)
    kernel = plan_kernel(program, DEVICE)
    tiling = kernel.plan.mapping.tiling
    assert tiling is not None and kernel.plan.mapping.rule == "register_lines"
    assert (tiling.kind, tiling.steps, tiling.threads) == (TilingKind.REGISTERS, rows, threads[name])
    checked(ptx_of(program))
    x = torch.randn(rows, channels, pixels, generator=torch.Generator().manual_seed(pixels)).to(dtype)
    found, positive, mean = torch.full_like(x, -7), torch.zeros_like(x, dtype=torch.bool), torch.empty(channels)
    CudaKernel(kernel.text).on_tensors(x, found, positive, mean)
    wide = x.double()
    torch.testing.assert_close(mean, wide.mean((0, 2)).float())
    torch.testing.assert_close(found, F.batch_norm(wide, None, None, training=True).to(dtype))
    assert torch.equal(positive, wide > wide.mean((0, 2), keepdim=True))


def test_more_rows_than_registers_are_walked_through_by_a_block() -> None:
    mapping = plan_kernel(normalised(32, 16, 64, "float32"), DEVICE).plan.mapping
    assert mapping.rule == "block_lines"


def test_rows_of_more_chunks_than_threads_are_refused() -> None:
    with pytest.raises(IllegalPlan, match="rows have 16 chunks"):
        plan_kernel(normalised(4, 16, 64, "float32"), DEVICE, {"register_lines.threads": 8})
