"""What neighbouring threads move lies side by side: which axis they share, and how many elements each has."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from captured_kernels import captured_kernels
from cuda_programs import TARGET
from kernel_values import check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of
from halide_backend.schedule.tiling import Tiling


def tiling_of(function: Callable[..., object], *arguments: Tensor) -> Tiling:
    """The tiling of its one kernel on a GPU."""
    (kernel,) = captured_kernels(function, arguments, TARGET)
    tiling = plan_kernel(kernel.program, device_of(TARGET)).plan.mapping.tiling
    assert tiling is not None
    return tiling


def products(x: Tensor, y: Tensor) -> Tensor:
    """Sums of parts of 16 rows of `x`, whose columns are rows of `y`; sums of a column lie side by side."""
    return (x.float().view(24, 16, -1).permute(2, 0, 1) * y.float().view(-1, 24, 16)).sum(-1)


def sums_and_maxima(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The same with a second result of each part."""
    product = x.float().view(24, 16, -1).permute(2, 0, 1) * y.float().view(-1, 24, 16)
    return product.sum(-1), product.amax(-1)


@pytest.mark.parametrize("function", [products, sums_and_maxima])
@pytest.mark.parametrize(("dtype", "elements"), [(torch.float32, 1), (torch.bfloat16, 2)], ids=str)
def test_threads_are_adjacent_where_they_read(
    function: Callable[..., object], dtype: torch.dtype, elements: int, needs_intrinsics: None
) -> None:
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(shape, generator=generator).to(dtype) for shape in ((384, 152), (152, 384)))
    tiling = tiling_of(function, x, y)
    assert tiling.adjacent == tiling.outer[0] and tiling.inner and tiling.elements == elements
    (kernel,) = check_values(function, x, y, tolerance=1e-5)
    assert kernel.code.count(".entry") == 1


def test_threads_are_adjacent_where_they_store_as_much() -> None:
    x = torch.empty(64, 12, 100)
    assert tiling_of(lambda x: x.sum(1), x).adjacent == ""


@pytest.mark.parametrize(("dtype", "elements"), [(torch.float32, 4), (torch.bfloat16, 2)], ids=str)
def test_rows_that_begin_anywhere(dtype: torch.dtype, elements: int, needs_intrinsics: None) -> None:
    """Of 16 bits a thread stores a word, so that its neighbours load what is next to what it loads."""

    def within(x: Tensor) -> Tensor:
        return x[:, 3:] * 2

    x = torch.randn(40, 1003, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert tiling_of(within, x).elements == elements
    check_values(within, x)


def test_masks_do_not_make_chunks_wider(needs_intrinsics: None) -> None:
    """Beside bfloat16 a chunk of float32 is one vector, also where a mask is loaded."""

    def masked(x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask, x.float(), 1.0)

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, 1024, generator=generator)
    arguments = x.bfloat16(), x > 0
    assert tiling_of(masked, *arguments).elements == 4
    check_values(masked, *arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_short_row_is_read_by_one_thread(dtype: torch.dtype, needs_intrinsics: None) -> None:
    """Neighbouring threads read next rows, and what they store of each column lies side by side."""

    def columns(x: Tensor) -> Tensor:
        return x.permute(2, 0, 1).contiguous()

    x = (torch.arange(20 * 40 * 4).reshape(20, 40, 4) % 50).to(dtype)
    assert tiling_of(columns, x).lines == 4
    (kernel,) = check_values(columns, x)
    # Of 16 bits a thread has two rows, and stores pairs.
    assert len(re.findall(r"ld\.global", kernel.code)) == (8 if dtype is torch.bfloat16 else 4)
