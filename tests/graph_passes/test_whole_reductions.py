"""Reductions of everything beside what is stored: by rows, in the kernel that stores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from captured_kernels import captured_kernels
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.inspection.compiled import compile_for
from halide_backend.program.loop_program import Reduction

TARGET = Target.named("avx512")
ROWS, COLUMNS = 512, 300


def error(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    apart = x - y
    return apart, (apart * apart).mean()


def largest(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * y, x.abs().amax(), x.amin()


def kept(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * y, (x + y).sum((0, 1), keepdim=True), x.mean((1, 0))


def step(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """LAMB's."""
    update = y / (y.abs().sqrt() + 1e-6) + 0.01 * x
    return update, x - 1e-3 * x.norm() / update.norm() * update


def counted(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    above = x > y
    return above, above.sum(), torch.where(above, x, y)


def alone(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return ((x - y) ** 2).mean(), x.amax()


def scaled(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """What is stored needs the result."""
    return (x / x.sum(),)


def transposed(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * y, x.t().contiguous().t().mul(2).sum()


def walks(function: Callable[..., Any], *arguments: Tensor) -> int:
    """How many kernels read elements of the first operand, or of one of its size."""
    kernels = captured_kernels(function, arguments, TARGET)
    return sum(any(buffer.extent == arguments[0].numel() for buffer in each.program.inputs) for each in kernels)


def operands(dtype: torch.dtype, rows: int = ROWS, columns: int = COLUMNS) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, columns).to(dtype), torch.randn(rows, columns).to(dtype)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("function", [error, largest, kept, step, counted, alone, scaled, transposed])
def test_results_are_right(function: Callable[..., Any], dtype: torch.dtype, dynamic: bool) -> None:
    compiled = compile_for("halide_backend", function, dynamic=dynamic)
    for rows, columns in ((ROWS, COLUMNS), (301, 517)) if dynamic else ((ROWS, COLUMNS),):
        x, y = operands(dtype, rows, columns)
        found, wanted, eager = compiled.call(x, y), function(x.double(), y.double()), function(x, y)
        for mine, truth, plain in zip(found, wanted, eager, strict=True):
            assert mine.dtype == plain.dtype and mine.shape == plain.shape
            narrow = dtype is torch.bfloat16
            tolerance = {"rtol": 2e-2, "atol": 2e-2} if narrow else {"rtol": 2e-5, "atol": 1e-4}
            torch.testing.assert_close(mine.double(), truth.double(), **tolerance)
    compiled.check_code()
    assert not compiled.delegated


@pytest.mark.parametrize(("function", "count"), [(error, 1), (largest, 1), (kept, 1), (step, 2), (counted, 1)])
def test_elements_are_stored_and_reduced_in_one_walk(function: Callable[..., Any], count: int) -> None:
    assert walks(function, *operands(torch.float32)) == count
    for kernel in captured_kernels(function, operands(torch.float32), TARGET):
        reductions = [v.attribute for v in kernel.program.values if isinstance(v.attribute, Reduction)]
        lengths = [math.prod(axis.hint for axis in reduction.axes) for reduction in reductions]
        assert all(length in (ROWS, COLUMNS) for length in lengths)


def test_what_stores_nothing_is_one_reduction() -> None:
    kernels = captured_kernels(lambda x, y: ((x * y).sum(), x.sum()), operands(torch.float32), TARGET)
    assert len(kernels) == 1


def test_a_result_that_is_needed_first_is_one_reduction() -> None:
    (first, *_) = captured_kernels(scaled, operands(torch.float32), TARGET)
    assert [buffer.extent for buffer in first.program.outputs] == [1]


def test_a_few_elements_are_read_again() -> None:
    """A walk over 128 KiB takes no longer than another kernel."""
    kernels = captured_kernels(lambda x: (x * 2, x.sum()), (torch.empty(128, 256),), TARGET)
    assert [buffer.extent for each in kernels for buffer in each.program.outputs] == [128 * 256, 1]


def test_short_inner_dimensions_are_rows_together() -> None:
    x = torch.randn(8, 64, 28, 28)
    found, total = compile_for("halide_backend", lambda x: (x.relu(), (x * x).sum())).call(x)
    assert torch.equal(found, x.relu())
    torch.testing.assert_close(total.double(), (x.double() ** 2).sum(), rtol=1e-5, atol=0)
    assert walks(lambda x: (x.relu(), (x * x).sum()), x) == 1


def test_channels_last_is_not_read_by_rows_of_another_order() -> None:
    x = torch.randn(8, 64, 28, 28).contiguous(memory_format=torch.channels_last)
    compiled = compile_for("halide_backend", lambda x: (x.relu(), (x * x).sum()))
    torch.testing.assert_close(compiled.call(x)[1].double(), (x.double() ** 2).sum(), rtol=1e-5, atol=0)
    kernels = captured_kernels(lambda x: (x.relu(), (x * x).sum()), (x,), TARGET)
    assert any(buffer.extent == 1 for each in kernels for buffer in each.program.outputs)
    assert len(kernels) == 2
