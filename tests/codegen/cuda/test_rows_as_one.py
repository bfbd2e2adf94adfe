"""Rows of 16 bits and fewer that end within a word are one line of memory; kernels run as numpy runs their PTX."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of

CASES: dict[str, tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...], int]] = {
    # Function, shapes, elements of a thread's step.
    "bias": (lambda x, b: torch.relu(x + b), ((77, 37), (37,)), 8),
    "bias, whole vectors": (lambda x, b: torch.relu(x + b), ((80, 37), (37,)), 8),
    "scale and bias": (lambda x, a, b: x * a + b, ((33, 101), (101,), (101,)), 8),
    "a factor for each row": (lambda x, a: x * a, ((64, 37), (64, 1)), 8),
    "the same, of a number of rows that ends within a word": (lambda x, a: x * a, ((77, 37), (77, 1)), 1),
    "two axes are enough": (lambda x, b: x - b, ((5, 8, 37), (5, 1, 37)), 8),
    "all three axes": (lambda x, b: x - b, ((3, 7, 11), (11,)), 8),
    "a row of words": (lambda x, b: x + b, ((77, 38), (38,)), 2),
    "a part of each row": (lambda x, b: x[:, 1:] + b, ((16, 38), (37,)), 1),
}


def inputs(shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randint(-9, 9, shape, generator=generator).to(dtype) for shape in shapes]


@pytest.mark.parametrize("case", CASES)
def test_vectors_go_on_in_the_next_row(case: str, needs_intrinsics: None) -> None:
    function, shapes, elements = CASES[case]
    tensors = inputs(shapes, torch.bfloat16)
    (program,) = programs_of(function, tuple(tensors))
    kernel = plan_kernel(program, device_of(TARGET))
    assert kernel.plan.mapping.tiling is not None and kernel.plan.mapping.tiling.elements == elements
    wanted = function(*tensors)
    found = torch.full_like(wanted, -7)
    CudaKernel(kernel.text).on_tensors(*tensors, found)
    torch.testing.assert_close(found, wanted)


def test_bytes(needs_intrinsics: None) -> None:
    x, y = inputs(((50, 37), (37,)), torch.int8)
    (program,) = programs_of(torch.add, (x, y))
    kernel = plan_kernel(program, device_of(TARGET))
    assert kernel.plan.mapping.tiling is not None and kernel.plan.mapping.tiling.elements > 1
    found = torch.full_like(x, -7)
    CudaKernel(kernel.text).on_tensors(x, y, found)
    assert torch.equal(found, x + y)


def test_rows_of_words_stay(needs_intrinsics: None) -> None:
    """float32: what a thread loads is a whole word as it is."""
    (program,) = programs_of(torch.add, tuple(inputs(((50, 37), (37,)), torch.float32)))
    tiling = plan_kernel(program, device_of(TARGET)).plan.mapping.tiling
    assert tiling is not None and tiling.outer == ("x0", "x1")
