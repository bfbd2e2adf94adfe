"""What kernels of dynamic sizes compute from them: places of elements, sizes squared, choices by places."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cuda_programs import TARGET
from kernel_values import check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

Compile = Callable[..., Any]


def causal(x: Tensor) -> Tensor:
    mask = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool).triu(1)
    return (x * 0.125).masked_fill(mask, float("-inf")).softmax(-1)


def causal_gradient(x: Tensor, y: Tensor) -> Tensor:
    """With masks before and after what lanes reduce together."""
    mask = torch.ones(x.shape[-1], x.shape[-1], dtype=torch.bool).triu(1)
    s = causal(x)
    return (s * (y - (s * y).sum(-1, keepdim=True))).masked_fill(mask, 0.0) * 0.125


def integers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers whose sums are exact in any order."""
    return torch.randint(-8, 9, shape).to(dtype)


def test_windows_are_found_in_32_bits() -> None:
    """Quotients of quotients were divided in int64: im2col of 334 x 32 x 56 x 56 floats took an H200 twice as long as
    Triton."""
    first, *others = (integers(n, 3, side, side) for n, side in [(2, 9), (4, 12), (5, 6)])
    (kernel,) = check_values(lambda x: F.unfold(x, 3, padding=1), first, dynamic=True, others=[(x,) for x in others])
    assert "div.s64" not in kernel.code and "rem.s64" not in kernel.code


def test_two_choices_by_one_condition_are_one_kernel() -> None:
    """Halide refused it ("argument of Not is not a bool"), and four kernels took its place."""
    first, *others = ((torch.randn(3, n, n), torch.randn(3, n, n)) for n in (70, 65))
    (kernel,) = check_values(causal_gradient, *first, dynamic=True, others=others, tolerance=1e-4)
    assert "warp_lines" in kernel.text or "computed=True" in kernel.text


def test_the_host_squares_sizes(kernel: Compile) -> None:
    """Each thread computed a power in float64."""
    code = kernel(lambda x: x * (x.shape[0] * x.shape[2] ** 2 / x.shape[1]), torch.rand(3, 5, 7))
    assert ".f64" not in code.code.split(".visible .entry", 1)[-1].split("{", 1)[-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_beside_columns_are_moved_in_vectors(dtype: torch.dtype) -> None:
    """Rows of unknown length are one axis, of which the last vector may be short; columns are read one by one."""
    sizes = [(33, 19), (7, 8), (2, 3), (5, 64)]
    first, *others = ((integers(*size, dtype=dtype), integers(size[1], dtype=dtype)) for size in sizes)
    (kernel,) = check_values(lambda x, b: (x + 1) * b, *first, dynamic=True, others=others)
    assert re.search(r"ld\.global\.nc\.v(4\.b32|2\.b64)", kernel.code) and "short=True" in kernel.text


@pytest.mark.parametrize("order", [(1, 3, 0, 2), (3, 1, 0, 2), (1, 0, 3, 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_short_inner_axis_fills_tiles(order: tuple[int, ...], dtype: torch.dtype) -> None:
    """Of 8 heads three quarters of the threads of a tile had nothing to store; the tile goes on along the next axis,
    or is as narrow if that is read along."""
    first, *others = (integers(*size, dtype=dtype) for size in [(40, 5, 8, 33), (3, 7, 9, 70), (6, 4, 2, 41)])
    function = lambda x: x.permute(order).contiguous()  # noqa: E731
    (kernel,) = check_values(function, first, dynamic=True, others=[(x,) for x in others])
    assert "SHARED_TRANSPOSE" in kernel.text
    assert "side=8" in kernel.text or "memory.quotient" in kernel.text


@pytest.mark.parametrize(
    ("rows", "columns", "threads"), [(667, 50257, 512), (8192, 4096, 256), (10688, 3136, 128)], ids=str
)
def test_lines_of_unknown_length_have_threads_that_fill_the_gpu(
    programs: Compile, rows: int, columns: int, threads: int
) -> None:
    x = torch.empty(rows, columns, device="meta")
    function = (lambda x: x.sum(-1)) if threads == 128 else (lambda x: torch.softmax(x, -1))
    (program,) = programs(function, torch.empty_like(x, device="cpu"), dynamic=True)
    tiling = plan_kernel(program, device_of(TARGET)).plan.mapping.tiling
    assert tiling is not None and tiling.threads == threads
