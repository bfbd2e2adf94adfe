"""Transposes whose stored axis ends before a tile does: memory goes on along the next axis, and so does the tile."""

from __future__ import annotations

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.schedule.mapping.prepared import prepared

DEVICE = device_of(TARGET)


def captured(x: Tensor, order: tuple[int, ...]) -> LoopProgram:
    (program,) = programs_of(lambda x: x.permute(order).contiguous() * 2, (x,))
    return program


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("shape", "order"), [((9, 3, 7, 33), (3, 1, 0, 2)), ((13, 4, 40), (2, 1, 0))])
def test_values(shape: tuple[int, ...], order: tuple[int, ...], dtype: torch.dtype, needs_intrinsics: None) -> None:
    x = (torch.arange(torch.Size(shape).numel()) % 251).reshape(shape).to(dtype)
    kernel = CudaKernel(plan_kernel(captured(x, order), DEVICE).text)
    assert "TilingKind.SHARED_TRANSPOSE" in kernel.text
    wanted = (x.permute(order) * 2).contiguous()
    found = torch.zeros_like(wanted)
    kernel.on_tensors(x, found)
    assert torch.equal(found, wanted)


def test_vectors_of_several_axes(needs_intrinsics: None) -> None:
    """37 elements are no vectors, 37 x 8 are; rows of an odd number of them begin within sectors."""
    x = (torch.arange(37 * 8 * 64) % 251).reshape(37, 8, 64).to(torch.bfloat16)
    plan = plan_kernel(captured(x, (2, 1, 0)), DEVICE, {"register_transposes.applies": True})
    assert "Split('out_ptr0', 'x2_c', 'along', 'i', 32)" in plan.text
    wanted = (x.permute(2, 1, 0) * 2).contiguous()
    found = torch.zeros_like(wanted)
    CudaKernel(plan.text).on_tensors(x, found)
    assert torch.equal(found, wanted)


@pytest.mark.parametrize(
    ("shape", "order", "extents"),
    [
        ((9, 3, 7, 33), (3, 1, 0, 2), [33, 189]),  # stored along all but what is read along
        ((200, 3, 7, 33), (3, 1, 0, 2), [33, 3, 1400]),  # so many that the last tile does not matter
        ((64, 3, 33), (2, 1, 0), [33, 3, 64]),  # whole tiles
        ((5, 33, 7, 3), (0, 2, 3, 1), [5, 21, 33]),  # what memory goes on along is read along
    ],
    ids=str,
)
def test_axes(shape: tuple[int, ...], order: tuple[int, ...], extents: list[int]) -> None:
    program = prepared(captured(torch.zeros(shape), order), DEVICE)
    assert [axis.extent for axis in program.outer] == extents


def test_a_tile_is_no_longer_than_a_short_axis_that_is_read_along() -> None:
    """Half of the tiles of 32 channels was beyond their end."""
    plan = plan_kernel(captured(torch.zeros(8, 64, 64, 32), (0, 3, 1, 2)), DEVICE)
    assert plan.plan.mapping.tiling is not None
    assert plan.plan.mapping.tiling.lines == 32


@pytest.mark.parametrize("shape", [(8, 4, 14, 8, 200), (1, 4, 14, 4, 200)], ids=str)
def test_a_tile_is_as_wide_as_a_short_axis_that_is_written_along(shape: tuple[int, ...]) -> None:
    """Memory goes on along the axis that is read along."""
    plan = plan_kernel(captured(torch.zeros(shape), (0, 3, 1, 4, 2)), DEVICE)
    assert plan.plan.mapping.tiling is not None
    assert plan.plan.mapping.tiling.side == 14


@pytest.mark.parametrize("channels", [2, 4, 7])
def test_an_operand_that_is_read_along_few_elements(channels: int, needs_intrinsics: None) -> None:
    """Four channels of a group, whose factor made an axis of their own of them: a thread read a sector for each."""
    x = (torch.arange(2 * 70 * 9 * channels) % 251).reshape(2, 70, 9, channels).float()
    factors = (torch.arange(18) % 7 + 1).reshape(2, 9).float()

    def grouped(x: Tensor, factors: Tensor) -> Tensor:
        return (x.permute(0, 2, 3, 1) * factors[:, :, None, None]).contiguous()

    (program,) = programs_of(grouped, (x, factors))
    kernel = CudaKernel(plan_kernel(program, DEVICE).text)
    assert "TilingKind.SHARED_TRANSPOSE" in kernel.text
    wanted = grouped(x, factors)
    found = torch.zeros_like(wanted)
    kernel.on_tensors(x, factors, found)
    assert torch.equal(found, wanted)
