"""What threads have that work alone: elements, steps, points that share what is read. Nothing is run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import Split
from halide_backend.schedule.tiling import Tiling

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))

from captured_kernels import captured_kernels

TARGET = Target.cuda(9, 0)


def planned(function: Callable[..., Any], *operands: Tensor) -> PlannedKernel:
    (kernel,) = captured_kernels(function, operands, TARGET)
    return plan_kernel(kernel.program, device_of(TARGET))


def tiling(function: Callable[..., Any], *operands: Tensor) -> Tiling:
    found = planned(function, *operands).plan.mapping.tiling
    assert found is not None
    return found


def per_block(kernel: PlannedKernel) -> list[int]:
    """The factors by which the output's loop is divided: into blocks, and into the threads of one."""
    return [step.factor for step in kernel.plan.steps if isinstance(step, Split) and step.func == "out_ptr0"]


def empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(shape, dtype=dtype)


@pytest.mark.parametrize(("dtype", "elements"), [(torch.float32, 4), (torch.bfloat16, 8), (torch.int8, 8)], ids=str)
def test_a_thread_has_a_vector(dtype: torch.dtype, elements: int) -> None:
    assert tiling(lambda x: x + 1, empty(512, 512, dtype=dtype)).elements == elements


def test_what_becomes_wider_has_one_vector_of_that() -> None:
    assert tiling(lambda x: x.float() * 2, empty(512, 512)).elements == 4


def test_what_is_stored_with_steps_has_few_elements() -> None:
    """Neighbouring threads are as far apart as all that one has."""
    assert tiling(lambda x: F.pixel_shuffle(x, 2), empty(64, 64, 64, 64, dtype=torch.float32)).elements == 2


def test_the_elements_of_a_word_are_stored_together() -> None:
    """Two of 16 bits, of two channels, so that a thread stores a vector."""
    assert tiling(lambda x: F.pixel_shuffle(x, 2), empty(64, 64, 64, 64)).elements == 8


def test_what_is_stored_with_steps_is_soon_done() -> None:
    """Others store what lies between: a thread has 16 bytes, and so has one of every third element of 16 bits."""
    shuffled = planned(lambda x: F.pixel_shuffle(x, 2), empty(340, 32, 52, 52, dtype=torch.float32))
    assert per_block(shuffled) == [2 * 128, 128]
    assert per_block(planned(lambda x: x[:, ::3] * 2, empty(7936, 4224))) == [8 * 128, 128]


@pytest.mark.parametrize(
    ("shape", "order", "sides"),
    [
        ((61, 13, 37, 11, 93), (0, 2, 4, 1, 3), (32, 32)),
        ((577, 61, 7, 131), (2, 0, 3, 1), (64, 32)),
        ((4099, 2001), (1, 0), (64, 64)),
    ],
    ids=str,
)
def test_large_tiles_end_near_the_ends_of_axes(
    shape: tuple[int, ...], order: tuple[int, ...], sides: tuple[int, int]
) -> None:
    """Of 143 elements by 93 large tiles have 192 x 128, small ones 160 x 96: 66.9 and 45.7 us."""
    found = tiling(lambda x: x.permute(order).contiguous(), empty(*shape))
    assert (found.side, found.lines) == sides


def test_a_copy_takes_two_steps() -> None:
    def heads(x: Tensor) -> Tensor:
        return x.transpose(1, 2).contiguous()

    assert per_block(planned(heads, empty(8, 512, 8, 64))) == [256, 128]
    # Of too few threads each has one, and so has one that has something to compute.
    assert per_block(planned(heads, empty(2, 512, 8, 64))) == [128]
    assert per_block(planned(lambda x: F.gelu(heads(x)), empty(8, 512, 8, 64))) == [128]


def test_threads_that_store_little_take_several_steps() -> None:
    """Slices of odd rows are stored in words: eight of them, if threads enough are left, else fewer."""
    assert per_block(planned(lambda x: x[:, 1:] * 2, empty(8192, 4095)))[0] == 8 * 256
    assert per_block(planned(lambda x: x[:, 1:] * 2, empty(512, 4095)))[0] == 256


def test_points_of_a_stencil_share_rows() -> None:
    def blurred(x: Tensor) -> Tensor:
        return x[:, :-2, 1:] + x[:, 1:-1, 1:] * 2 + x[:, 2:, 1:]

    found = tiling(blurred, empty(167, 1026, 131))
    assert (found.across, found.lines) == ("x1", 8)


def test_points_share_the_places_that_are_computed() -> None:
    """Bilinear interpolation: those of a pixel are the same in all channels."""
    x = empty(64, 32, 28, 28, dtype=torch.float32)
    found = tiling(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False), x)
    assert (found.across, found.lines) == ("x0", 8)


@pytest.mark.parametrize(("columns", "lines"), [(3, 3), (6, 6), (5, 0)])
def test_a_thread_has_all_of_a_short_row_that_is_stored_as_columns(columns: int, lines: int) -> None:
    assert tiling(lambda x: x.t().contiguous(), empty(1 << 20, columns, dtype=torch.float32)).lines == lines
