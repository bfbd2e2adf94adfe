"""Columns that lie side by side in one operand, and each along memory in another: threads read vectors of them."""

from __future__ import annotations

import re

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel, check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of


def weights(g: Tensor, x: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """The gradient of a norm's weights, over the channels of pictures whose gradient has the channels first."""
    return (g.mT.float() * ((x - mean) * scale).float()).sum(1)


def operands(dtype: torch.dtype, pixels: int, channels: int) -> tuple[Tensor, ...]:
    def small(*shape: int) -> Tensor:
        return torch.randint(-3, 4, shape).to(dtype)

    return small(3, channels, pixels), small(3, pixels, channels), small(3, pixels, 1), small(3, pixels, 1)


@pytest.mark.parametrize("pixels", [196, 200, 80])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values(dtype: torch.dtype, pixels: int, needs_intrinsics: None) -> None:
    (kernel,) = check_values(weights, *operands(dtype, pixels, 32))
    assert "TilingKind.COLUMNS" in kernel.text and "adjacent='x1'" in kernel.text
    words = {torch.float32: r"v4\.b32", torch.bfloat16: r"v2\.b64" if pixels % 8 == 0 else r"nc\.b32"}[dtype]
    assert re.search(rf"ld\.global\S*{words}", kernel.code)


@pytest.mark.parametrize(("pixels", "channels"), [(196, 30), (40, 32)])
def test_lines_where_columns_are_no_sectors_or_short(pixels: int, channels: int, needs_intrinsics: None) -> None:
    (kernel,) = check_values(weights, *operands(torch.float32, pixels, channels))
    assert "adjacent=" not in kernel.text


def test_columns_that_are_no_vectors(needs_intrinsics: None) -> None:
    (kernel,) = check_values(weights, *operands(torch.float32, 201, 32))
    assert "adjacent='x1'" in kernel.text and not re.search(r"ld\.global\S*v[24]", kernel.code)


@pytest.mark.parametrize("pixels", [200, 131])
def test_moments_of_the_one_beside_sums_of_both(pixels: int, needs_intrinsics: None) -> None:
    """A group norm's gradient makes its statistics again; a warp that had 32 columns read as many lines of the other
    operand for each point."""

    def statistics(x: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        mean = x.sum(1) / pixels
        deviation = x - mean[:, None]
        return mean, (deviation * deviation).sum(1), (g.mT * x).sum(1), g.sum(2)

    g, x = operands(torch.float32, pixels, 16)[:2]
    (program,) = programs_of(statistics, (x, g))
    kernel = CudaKernel(plan_kernel(program, device_of(TARGET)).text)
    assert "reductions.moments" in kernel.text and "adjacent='x1'" in kernel.text
    found = [torch.full((3, 16), -1.0) for _ in range(4)]
    kernel.on_tensors(x, g, *found)
    for own, wanted in zip(found, statistics(x.double(), g.double()), strict=True):
        torch.testing.assert_close(own.double(), wanted, rtol=1e-5, atol=1e-5)


def test_a_reduction_that_needs_another(needs_intrinsics: None) -> None:
    """Each would load the vectors that the other one has."""

    def spread(g: Tensor, x: Tensor) -> Tensor:
        y = g.mT * x
        return (y - y.mean(1, keepdim=True)).abs().amax(1)

    check_values(spread, *operands(torch.float32, 256, 16)[:2], tolerance=1e-6)


def test_bytes_and_numbers_that_leave_no_room_for_a_place(needs_intrinsics: None) -> None:
    check_values(lambda g, x: (g.mT > x).all(1), *operands(torch.int8, 256, 32)[:2])
    check_values(lambda g, x: (g.mT * x).argmin(1), *operands(torch.int64, 64, 16)[:2])


def test_two_sums_and_a_maximum(needs_intrinsics: None) -> None:
    def several(g: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return (g.mT * x).sum(1), g.sum(2), (g.mT + x).amax(1)

    kernels = check_values(several, *operands(torch.float32, 256, 16)[:2])
    assert any("adjacent='x1'" in kernel.text for kernel in kernels)
