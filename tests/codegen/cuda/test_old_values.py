"""Old values of overwritten memory that several outputs need: a thread loads each once, before it stores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from cuda_programs import cuda_kernel_text, programs_of
from kernel_values import check_values
from torch import Tensor

from halide_backend.errors import Unsupported


def adam(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
    m.mul_(0.75).add_(g, alpha=0.25)
    v.mul_(0.5).add_(g * g)
    p.sub_(m / (v + 1))
    return p + m + v


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(4096,), (1001,), (3,), (33, 7), (5, 6, 64)], ids=str)
def test_several_outputs_need_what_they_overwrite(
    shape: tuple[int, ...], dtype: torch.dtype, needs_intrinsics: None
) -> None:
    def halves(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        before = x - y
        x.mul_(2).add_(y)
        y.add_(before)
        return before, x * y

    operands = [torch.randint(-8, 9, shape).to(dtype) for _ in range(2)]
    (kernel,) = check_values(halves, *operands)
    assert "old=True" in kernel.text or "PRESERVED" in kernel.text


@pytest.mark.parametrize("shape", [(256, 24), (1001,), (7, 9)], ids=str)
def test_an_optimizer_is_one_kernel(shape: tuple[int, ...], needs_intrinsics: None) -> None:
    (kernel,) = check_values(adam, *(torch.rand(shape) for _ in range(4)), tolerance=1e-6)
    assert kernel.code.count("ld.global") == 4, "an operand is loaded again"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("shape", [(1001,), (5, 130)], ids=str)
def test_of_dynamic_sizes(shape: tuple[int, ...], dtype: torch.dtype, needs_intrinsics: None) -> None:
    def update(x: Tensor, y: Tensor) -> Tensor:
        before = x * 2
        x.add_(y)
        return before

    (kernel,) = check_values(update, *(torch.randint(-8, 9, shape).to(dtype) for _ in range(2)), dynamic=True)
    assert "old=True" in kernel.text or "PRESERVED" in kernel.text


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_every_other_row(dtype: torch.dtype, needs_intrinsics: None) -> None:
    def update(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        before = x[::2] * 2 - z[::2]
        x[::2].mul_(z[::2]).add_(y[::2])
        z[::2].sub_(before)
        return before, x + 1

    check_values(update, *(torch.randint(-4, 5, (5, 130)).to(dtype) for _ in range(3)))


def by_another_value(x: Tensor, y: Tensor) -> Tensor:
    before = x * 2 + y
    x.copy_(y + 1)
    return before


def across(x: Tensor, y: Tensor) -> Tensor:
    before = x * 2
    x.t().add_(y)
    return before


@pytest.mark.parametrize("function", [by_another_value, across])
def test_what_may_be_loaded_late_gets_kernels_of_its_own(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    (program,) = programs_of(function, (torch.rand(32, 32), torch.rand(32, 32)))
    with pytest.raises(Unsupported, match="an old value of in_ptr0 is needed by several stores"):
        cuda_kernel_text(program)
