"""Means and squared deviations from them where threads reduce across memory: memory is read once."""

from __future__ import annotations

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import LoopProgram, Reduction
from halide_backend.schedule.device import device_of
from halide_backend.schedule.mapping.prepared import prepared

DEVICE = device_of(TARGET)


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """The sums that a variance is captured as for a GPU."""
    x = x.float()
    mean = x.sum(1) / x.shape[1]
    deviation = x - mean[:, None]
    return mean, (deviation * deviation).sum(1)


def kernel_of(x: Tensor, knobs: dict[str, int] | None = None) -> CudaKernel:
    (program,) = programs_of(moments, (x,))
    return CudaKernel(plan_kernel(program, DEVICE, knobs).text)


def found(kernel: CudaKernel, x: Tensor) -> tuple[Tensor, Tensor]:
    results = torch.full((x.shape[0], x.shape[2]), -1.0), torch.full((x.shape[0], x.shape[2]), -1.0)
    kernel.on_tensors(x, *results)
    return results


def check(kernel: CudaKernel, x: Tensor) -> None:
    """The mean as near as float32 numbers are, the squares as near as sums of so many are."""
    mean, _ = moments(x.double())
    own_mean, own_squares = found(kernel, x)
    scale = x.double().abs().amax(1)
    assert ((own_mean - mean).abs() <= 4e-7 * scale).all()
    wanted = ((x.double() - x.double().mean(1, keepdim=True)) ** 2).sum(1)
    # Where a mean is rounded by r, n points are off by r each.
    rounding = x.shape[1] * (1e-7 * scale) ** 2
    assert ((own_squares - wanted).abs() <= 3e-6 * wanted + 4 * rounding).all(), (own_squares, wanted)


#: Of whole and of partial chunks, by one thread and by several, of which some have a point more than others.
SHAPES = [(2, 96, 48), (1, 67, 24), (2, 200, 16), (1, 131, 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mean", [0.0, 3e4])
def test_values(shape: tuple[int, ...], mean: float, needs_intrinsics: None) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1)) + mean
    check(kernel_of(x), x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("place", [0, -1])
def test_a_first_value_far_from_all_others(shape: tuple[int, ...], place: int, needs_intrinsics: None) -> None:
    """What chunks are measured from is one of their values: it may be none like the others."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    x[:, place] = 1e6
    check(kernel_of(x), x)


def test_equal_values_do_not_deviate(needs_intrinsics: None) -> None:
    x = torch.full((2, 200, 16), 1.1)
    assert (found(kernel_of(x), x)[1] <= 200 * (1.1 * 2**-23) ** 2).all()


@pytest.mark.parametrize("count", [1, 4, 16])
def test_chunks(count: int, needs_intrinsics: None) -> None:
    x = torch.randn(2, 200, 16, generator=torch.Generator().manual_seed(1))
    check(kernel_of(x, {"column_groups.unroll": count}), x)
    alone = {"column_groups.applies": False, "column_reductions.unroll": count}
    check(kernel_of(x, alone), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_memory_is_read_once(dtype: torch.dtype, needs_intrinsics: None) -> None:
    """Two sums read 334 x 32 columns of 3136 points twice."""
    (program,) = programs_of(moments, (torch.zeros(40, 256, 512, dtype=dtype),))
    assert kinds(prepared(program, DEVICE)) == {"mean", "squared_deviations"}
    plan = plan_kernel(program, DEVICE)
    assert plan.text.count("hl.RDom") == 1
    kernel = CudaKernel(plan.text)
    assert 32 <= kernel.code.count("ld.global") <= 36


@pytest.mark.parametrize("shape", [(1, 32, 512), (512, 40, 1)], ids=str)
def test_what_a_thread_holds_is_two_sums(shape: tuple[int, ...], needs_intrinsics: None) -> None:
    """Lines, and columns so short that all of them is unrolled."""
    (program,) = programs_of(moments, (torch.zeros(shape),))
    assert kinds(prepared(program, DEVICE)) == {"sum"}


def kinds(program: LoopProgram) -> set[str]:
    found = (value.attribute for value in program.values)
    return {attribute.kind for attribute in found if isinstance(attribute, Reduction)}
