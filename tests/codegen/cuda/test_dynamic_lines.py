"""Short lines and transposes of dynamic sizes are read and written as those of known sizes are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cuda_programs import TARGET
from kernel_values import check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import AlignStorage

Compile = Callable[..., Any]

TRANSPOSES: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "matrix": (lambda x: x.t().contiguous(), 2),
    "sum": (lambda x: (x.t() * 2 + torch.ones(x.shape[1], x.shape[0], dtype=x.dtype)).contiguous(), 2),
    "in the operand's order": (lambda x: (y := x.t().contiguous()) * (y + 1), 2),
    "last two": (lambda x: x.permute(0, 2, 1).contiguous(), 3),
    "all three": (lambda x: (x.permute(2, 1, 0) + 1).contiguous(), 3),
    "channels": (lambda x: x.permute(0, 2, 3, 1).contiguous(), 4),
    "from channels": (lambda x: x.permute(3, 1, 0, 2).contiguous(), 4),
}

LINES: dict[str, Callable[[Tensor], Any]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "norm": lambda x: (x.float() - x.float().mean(-1, keepdim=True)) / (x.float().var(-1, keepdim=True) + 1),
    "sum": lambda x: x.sum(-1),
    "variance": lambda x: x.float().var(-1),
    "largest": lambda x: (x.amax(-1), x - x.amax(-1, keepdim=True)),
    "place": lambda x: x.argmax(-1),
}


def integers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers whose sums are exact in any order."""
    return torch.randint(-8, 9, shape).to(dtype)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("form", TRANSPOSES)
def test_a_transpose_of_any_size_goes_through_shared_memory(form: str, dtype: torch.dtype) -> None:
    """An H100 took three times as long as Triton for the permutation of 8192 x 4096 floats that read across memory."""
    function, dimensions = TRANSPOSES[form]
    sizes = [(33, 19, 21, 10), (9, 40, 12, 8), (2, 3, 5, 70)]
    first, *others = (integers(*size[:dimensions], dtype=dtype) for size in sizes)
    (kernel,) = check_values(function, first, dynamic=True, others=[(x,) for x in others])
    assert "SHARED_TRANSPOSE" in kernel.text
    assert "ld.shared" in kernel.code


@pytest.mark.parametrize("form", ["matrix", "channels"])
def test_loads_of_a_dynamic_transpose_are_under_way_together(kernel: Compile, form: str) -> None:
    function, dimensions = TRANSPOSES[form]
    code = kernel(function, torch.rand(*(2048, 1003, 24, 31)[:dimensions]))
    assert (code.loads, code.stores, code.count(r"bar\.sync")) == (16, 16, 1)
    before, _ = code.code.split("bar.sync", 1)
    assert before.count("ld.global") == 16


@pytest.mark.parametrize("size", [(512, 1003), (1024, 512)], ids=str)
@pytest.mark.parametrize("is_dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("form", ["matrix", "in the operand's order"])
def test_lanes_meet_no_bank_twice(programs: Compile, form: str, is_dynamic: bool, size: tuple[int, int]) -> None:
    """Padding stood behind the outer axis of a tile that has the operand's order: gelu of a transpose of 4099 x 2001
    floats took 42 us on an H100, of which a plain one takes 26."""
    (program,) = programs(TRANSPOSES[form][0], torch.rand(size), dynamic=is_dynamic)
    planned = plan_kernel(program, device_of(TARGET))
    (tile,) = (stage for stage in planned.stages.stages if stage.role is Role.SHARED_TILE)
    (padded,) = (step for step in planned.plan.steps if isinstance(step, AlignStorage))
    assert padded.var == tile.loops[0].name
    assert padded.alignment % 32 == 1


@pytest.mark.parametrize(
    ("length", "dtype", "side"),
    [
        (8, torch.float32, 8),
        (13, torch.float32, 16),
        (20, torch.float32, 32),
        (70, torch.float32, 64),
        (70, torch.bfloat16, 32),
    ],
)
def test_a_tile_is_not_much_wider_than_a_short_axis(
    programs: Compile, length: int, dtype: torch.dtype, side: int
) -> None:
    """Of 64 lanes 8 stored something: 260 us for a permutation of 33.5 million floats on an H100, Triton 96."""
    x = torch.rand(9, 130, length, 64).to(dtype)
    (program,) = programs(lambda x: x.permute(1, 0, 3, 2).contiguous(), x, dynamic=True)
    assert plan_kernel(program, device_of(TARGET)).plan.mapping.tiling.side == side


@pytest.mark.parametrize(("dtype", "threads"), [(torch.float32, 256), (torch.bfloat16, 128), (torch.int8, 64)], ids=str)
def test_threads_of_a_tile_store_as_many_bytes(programs: Compile, dtype: torch.dtype, threads: int) -> None:
    """Of bytes to channels-last an H200 took 38 us with 256 threads, 28 us with 64."""
    images = torch.zeros(334, 32, 56, 56, dtype=dtype)
    (program,) = programs(lambda x: x.contiguous(memory_format=torch.channels_last), images, dynamic=True)
    assert dict(plan_kernel(program, device_of(TARGET)).plan.knobs)["shared_transposes.threads"] == threads


def test_a_line_of_any_length_is_stored_by_eight_loads_at_a_time(programs: Compile) -> None:
    (program,) = programs(lambda x, g: x * (x * g).sum(-1, keepdim=True), *torch.zeros(2, 512, 4096), dynamic=True)
    assert dict(plan_kernel(program, device_of(TARGET)).plan.knobs)["block_lines.stores"] == 8


def test_images_and_channels_in_one_loop_become_two() -> None:
    """Inductor has one loop over both, and divides: across memory, an H100 took 450 us for it and Triton 183."""

    def centred(x: Tensor, means: Tensor) -> Tensor:
        return (x.reshape(1, -1, *x.shape[2:]) - means[None, :, None, None]).reshape(x.shape)

    def operands(*size: int) -> tuple[Tensor, Tensor]:
        x = integers(*size).contiguous(memory_format=torch.channels_last)
        return x, integers(size[0] * size[1])

    (kernel,) = check_values(centred, *operands(3, 40, 9, 7), dynamic=True, others=[operands(2, 33, 5, 6)])
    assert "SHARED_TRANSPOSE" in kernel.text


def test_a_line_and_what_it_is_reduced_to_are_stored_by_one_kernel() -> None:
    """The one number of a line had a kernel of its own, and the line was read by a third: 128 us, Triton 85 (H100)."""

    def quantised(x: Tensor) -> tuple[Tensor, Tensor]:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return torch.round(x / scale).to(torch.int8), scale

    first, *others = (integers(*size) for size in [(5, 4096), (3, 700), (2, 5000)])
    (kernel,) = check_values(quantised, first, dynamic=True, others=[(x,) for x in others], tolerance=1e-6)
    assert "TilingKind.BLOCK" in kernel.text


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=["pictures", "channels"])
@pytest.mark.parametrize(
    "function",
    [lambda x: x.amax((2, 3)), lambda x: x.flatten(2).argmax(2), lambda x: x * 2 - x.mean((2, 3), keepdim=True)],
    ids=["largest", "place", "centred"],
)
def test_rows_and_columns_of_a_picture_are_reduced(
    function: Callable[[Tensor], Tensor], memory_format: torch.memory_format
) -> None:
    first, other = (integers(*size).contiguous(memory_format=memory_format) for size in [(3, 8, 12, 12), (2, 5, 7, 7)])
    check_values(function, first, dynamic=True, others=[(other,)], tolerance=2e-6)


def test_rows_apart_in_memory_are_reduced_one_by_one() -> None:
    first, *others = (integers(*size) for size in [(3, 8, 16, 9), (2, 5, 7, 12)])
    check_values(lambda x: x[..., 1:, 2:].sum((2, 3)), first, dynamic=True, others=[(x,) for x in others])


def test_what_all_columns_share_decides_nothing(programs: Compile) -> None:
    """Weights of the rows lie along what is reduced, in wider numbers: the kernel read across the large operand."""
    x, weights = torch.rand(4, 900, 70).bfloat16(), torch.rand(4, 900)
    (program,) = programs(lambda x, weights: (x * weights[..., None]).sum(1), x, weights, dynamic=True)
    assert plan_kernel(program, device_of(TARGET)).plan.mapping.rule.startswith("column")


@pytest.mark.parametrize(("rows", "factor"), [(24, 8), (100, 16), (37, 16), (7, 4)])
def test_few_rows_are_not_loaded_one_by_one(kernel: Compile, rows: int, factor: int) -> None:
    code = kernel(lambda x: x.amax(1), torch.rand(300, rows, 4001))
    assert f"'r_0$xi', {factor}," in code.text


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [37, 100, 300])
@pytest.mark.parametrize("form", LINES)
def test_lanes_walk_through_a_short_line_of_any_length(form: str, length: int, dtype: torch.dtype) -> None:
    sizes = [(9, length), (33, 5), (2, length + 70)]
    first, *others = (integers(*size, dtype=dtype) for size in sizes)
    tolerance = 2e-6 if dtype is torch.float32 else 2**-8
    kernels = check_values(LINES[form], first, dynamic=True, others=[(x,) for x in others], tolerance=tolerance)
    assert all("REGISTERS" in kernel.text and "bar.sync" not in kernel.code for kernel in kernels)


def test_lines_of_several_dynamic_axes() -> None:
    first, *others = (integers(*size) for size in [(3, 5, 2, 40), (2, 2, 3, 71), (5, 7, 3, 9)])
    (kernel,) = check_values(
        lambda x: torch.softmax(x, -1), first, dynamic=True, others=[(x,) for x in others], tolerance=2e-6
    )
    assert "REGISTERS" in kernel.text


@pytest.mark.parametrize(("length", "exchanges", "lines"), [(37, 3, 4), (100, 4, 2), (300, 5, 1)])
def test_lanes_of_a_short_line(kernel: Compile, length: int, exchanges: int, lines: int) -> None:
    code = kernel(lambda x: x.amax(-1), torch.rand(4001, length))
    assert code.count("shfl") == exchanges
    assert f"side={lines}" in code.text if lines > 1 else "side" not in code.text
    assert code.loads == 8


@pytest.mark.parametrize("function", [lambda x: x[:, 1:-1] * 2, lambda x: x[1:, ::3] + 1], ids=["inner", "steps"])
def test_a_slice_is_stored_as_one_line(function: Callable[[Tensor], Tensor]) -> None:
    """Inductor's stride is the greater of 1 and the extent; stores at it were scatters, with two divisions for each."""
    first, *others = (integers(*size) for size in [(33, 70), (9, 12), (40, 7)])
    (kernel,) = check_values(function, first, dynamic=True, others=[(x,) for x in others])
    assert "scatter" not in kernel.text
    assert not re.search(r"\b(div|rem)\.[su]", kernel.code)
