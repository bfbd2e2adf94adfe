"""Lines of which a warp has several, whatever their number; kernels run as numpy runs their PTX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel, check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import Axis, Buffer, Load, LoopProgram, Nest, Reduction, Store, Value
from halide_backend.schedule.device import device_of
from halide_backend.schedule.legality.check import check as check_plan
from halide_backend.schedule.stage import StageGraph
from halide_backend.schedule.steps import GpuThreads
from halide_backend.schedule.tiling import WARP, TilingKind

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "largest": lambda x: x.amax(-1),
    "place": lambda x: x.argmax(-1),
}


def planned(function: Callable[[Tensor], Tensor], x: Tensor, threads: int) -> PlannedKernel:
    (program,) = programs_of(function, (x,))
    kernel = plan_kernel(program, device_of(TARGET), {"register_lines.threads": threads})
    assert kernel.plan.mapping.tiling is not None
    assert (kernel.plan.mapping.tiling.kind, kernel.plan.mapping.tiling.threads) == (TilingKind.REGISTERS, threads)
    return kernel


def check(kernel: PlannedKernel, function: Callable[[Tensor], Tensor], x: Tensor) -> None:
    wanted = function(x)
    found = torch.full_like(wanted, -7)
    CudaKernel(kernel.text).on_tensors(x, found)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("width", "dtype", "threads"),
    [
        (8, torch.float32, 1),
        (8, torch.float32, 2),
        (10, torch.bfloat16, 1),
        (10, torch.bfloat16, 4),
        (37, torch.bfloat16, 8),
        (100, torch.bfloat16, 16),
    ],
    ids=str,
)
def test_rows_that_fill_no_warp(
    name: str, width: int, dtype: torch.dtype, threads: int, needs_intrinsics: None
) -> None:
    """77 rows: the last warp has lines beyond the end, whose threads come to every shuffle and store nothing."""
    x = torch.randn(77, width, generator=torch.Generator().manual_seed(width)).to(dtype)
    check(planned(FUNCTIONS[name], x, threads), FUNCTIONS[name], x)


def test_the_axis_that_memory_goes_on_along_is_padded(needs_intrinsics: None) -> None:
    """Channels of an image are reduced: rows are over two axes, since their strides are not those of one."""

    def function(x: Tensor) -> Tensor:
        return torch.softmax(x[:, :5], -1)

    x = torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(0))
    kernel = planned(function, x, 2)
    assert kernel.plan.mapping.tiling is not None and kernel.plan.mapping.tiling.outer == ("x0", "x1")
    assert "x1 = hl.min(x1_p, 4)" in kernel.text
    check(kernel, function, x)


@pytest.mark.parametrize(("images", "columns", "width"), [(11, 7, 8), (5, 3, 4), (2, 6, 2), (10, 12, 4)])
def test_a_block_has_the_lines_of_several_short_rows(
    images: int, columns: int, width: int, needs_intrinsics: None
) -> None:
    """Means of pictures in 7 columns: threads for an eighth one have nothing to do, those for 24 more would not
    either (averages of 32 x 96 x 56 x 56 bfloat16 to 7 x 7 took 14.5 us on an H200, and take 6.4 us)."""

    def function(x: Tensor) -> Tensor:
        return x.mean((1, 3))

    x = torch.randn(images, 8, columns, 8, generator=torch.Generator().manual_seed(0))
    kernel = planned(function, x, WARP // width)
    (outputs,) = [step for step in kernel.plan.steps if isinstance(step, GpuThreads)]
    assert outputs.vars == ("t", "y", "y2") and f"'block', 'y', {width})" in kernel.text
    check(kernel, function, x)


def test_a_warp_that_is_not_filled_is_refused() -> None:
    """Its lanes beyond the end would not come to the shuffles that the others wait in."""
    kernel = planned(FUNCTIONS["largest"], torch.randn(77, 8), 2)
    tiling = kernel.plan.mapping.tiling
    assert tiling is not None and tiling.side == 16
    check_plan(kernel.stages, kernel.plan.steps, tiling)
    unpadded = [
        replace(stage, loops=tuple(replace(loop, extent=77) if loop.axis == "x0" else loop for loop in stage.loops))
        for stage in kernel.stages.stages
    ]
    with pytest.raises(IllegalPlan, match="the last warp has less than 16 lines"):
        check_plan(StageGraph(tuple(unpadded), ("x0",)), kernel.plan.steps, tiling)


@pytest.mark.parametrize(
    ("width", "dtype", "threads"),
    [
        (8, torch.float32, 2),
        (10, torch.bfloat16, 2),
        (37, torch.bfloat16, 8),
        (64, torch.float32, 8),
        (384, torch.bfloat16, 16),  # 48 chunks, of which a warp would have 32 and 16
        (512, torch.bfloat16, 32),
    ],
    ids=str,
)
def test_the_rule_gives_many_short_lines_few_threads(width: int, dtype: torch.dtype, threads: int) -> None:
    (program,) = programs_of(FUNCTIONS["softmax"], (torch.zeros(8_000_000 // width, width, dtype=dtype),))
    tiling = plan_kernel(program, device_of(TARGET)).plan.mapping.tiling
    assert tiling is not None and tiling.threads == threads


@pytest.mark.parametrize("dtype", ["float32", "bool"])
@pytest.mark.parametrize("pixels", [12, 16, 32])
def test_two_results_of_lines_that_lie_apart(needs_intrinsics: None, pixels: int, dtype: str) -> None:
    """Of 4 pictures the same channel: in chunks of 4 elements there would be fewer than a block has threads."""
    x0, x1, x2 = axes = Axis("x0", 8, 8), Axis("x1", 4, 4), Axis("x2", pixels, pixels)
    index = pixels * x0.symbol + 8 * pixels * x1.symbol + x2.symbol
    names, count = frozenset({"x0", "x1", "x2"}), 32 * pixels
    program = LoopProgram(
        inputs=(Buffer("in_ptr0", "float32", count, 0, aligned=True),),
        sizes=(),
        outputs=(
            Buffer("out_ptr0", "float32", count, 1, aligned=True),
            Buffer("out_ptr1", dtype, count, 2, aligned=True),
        ),
        values=(
            Value("load", "float32", (), Load("in_ptr0", index), names),
            Value("reduction", "float32", (0,), Reduction("sum", (x1, x2)), frozenset({"x0"})),
            Value("truediv", "float32", (0, 1), None, names),
            Value("lt" if dtype == "bool" else "mul", dtype, (0, 1), None, names),
        ),
        stores=(Store("out_ptr0", index, 2, Nest(axes)), Store("out_ptr1", index, 3, Nest(axes))),
        checks=(),
        outer=(x0,),
    )
    kernel = plan_kernel(program, device_of(TARGET), {"register_lines.applies": False})
    assert kernel.plan.mapping.rule == "block_lines"
    x = torch.randn(4, 8, pixels, generator=torch.Generator().manual_seed(0))
    divided, second = torch.zeros_like(x), torch.zeros_like(x, dtype=getattr(torch, dtype))
    CudaKernel(kernel.text).on_tensors(x, divided, second)
    x = x.double()
    total = x.sum((0, 2), keepdim=True)
    torch.testing.assert_close(divided.double(), x / total, rtol=1e-4, atol=0)
    wanted = x < total if dtype == "bool" else (x * total).float()
    torch.testing.assert_close(second, wanted, rtol=1e-4, atol=0)


@pytest.mark.parametrize("function", [lambda x: x.amax(-1), lambda x: x - x.sum(-1, keepdim=True)])
def test_an_unknown_number_of_short_rows(function: Callable[[Tensor], Tensor], needs_intrinsics: None) -> None:
    """Each row had a warp, and most lanes nothing: the gradient of an upsampling by three took 363 us, not 35."""
    sizes = (9 * 77, 9 * 64, 9 * 5)
    first, *others = (torch.randint(-50, 50, (size,)).float() for size in sizes)
    rows = [(x,) for x in others]
    kernels = check_values(lambda x: function(x.view(-1, 9)), first, dynamic=True, others=rows)
    assert kernels and all("side=" in kernel.text for kernel in kernels)
