"""Lines along memory in some tensors and side by side in others: neighbouring threads have neighbouring lines."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from captured_kernels import captured_kernels
from cuda_programs import TARGET
from kernel_values import check_values
from torch import Tensor
from torch.nn import functional

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedule.device import device_of
from halide_backend.schedule.mapping.mapping import Mapping


def mapping_of(function: Callable[..., object], *arguments: Tensor) -> Mapping:
    """The mapping of its one kernel on a GPU."""
    (kernel,) = captured_kernels(function, arguments, TARGET)
    return plan_kernel(kernel.program, device_of(TARGET)).plan.mapping


def norm(x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """A layer norm of tokens, whose channels come first in `x`."""
    return functional.layer_norm((x.mT + y).float(), y.shape[-1:]) * weights


def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Results that lie as `x` does and as `y` does, and one for each line."""
    total = x.mT + y
    largest = total.amax(-1, keepdim=True)
    return total, y * (total - largest), largest


def places(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """A place, which takes numbers of 64 bits, and what is stored along lines."""
    place = (x.mT * y).argmax(-1)
    return place, y + place[..., None]


def operands(dtype: torch.dtype, lines: int, points: int, pictures: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(lines)
    shapes = (pictures, points, lines), (pictures, lines, points)
    return tuple(torch.randint(-8, 9, shape, generator=generator).to(dtype) for shape in shapes)  # type: ignore[return-value]


@pytest.mark.parametrize("lines", [8, 25, 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_values_of_a_norm(dtype: torch.dtype, lines: int, needs_intrinsics: None) -> None:
    x, y = operands(dtype, lines, 320)
    (kernel,) = check_values(norm, x, y, torch.arange(320.0) / 16, tolerance=1e-5)
    assert "TilingKind.REGISTERS" in kernel.text and "adjacent='x1'" in kernel.text
    assert re.search(r"ld\.global\S*(v4\.b32|v2\.b64)", kernel.code)


@pytest.mark.parametrize("function", [both, places])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
def test_values_of_results(function: Callable[..., object], dtype: torch.dtype, needs_intrinsics: None) -> None:
    kernels = check_values(function, *operands(dtype, 33, 264))
    assert any("adjacent='x1'" in kernel.text and "TilingKind.REGISTERS" in kernel.text for kernel in kernels)


def test_a_picture_of_channels_last(needs_intrinsics: None) -> None:
    """An instance norm reads its pictures once: the statistics were a kernel of their own."""
    x = torch.randint(-8, 9, (2, 16, 24, 24)).float().contiguous(memory_format=torch.channels_last)
    (kernel,) = check_values(lambda x: functional.instance_norm(x).contiguous(), x, tolerance=1e-5)
    assert "adjacent='x1'" in kernel.text and "moments" not in kernel.text


@pytest.mark.parametrize(("dtype", "lines"), [(torch.float32, 8), (torch.bfloat16, 16)], ids=str)
def test_lines_of_a_block_fill_a_sector(dtype: torch.dtype, lines: int) -> None:
    """A warp of one line read as many sectors: the layer norm of 384 x 1500 floats took 7.1 us, so 4.1 us."""
    x, y = (torch.empty(shape, dtype=dtype) for shape in ((16, 384, 576), (16, 576, 384)))
    mapping = mapping_of(norm, x, y, torch.empty(384))
    assert mapping.rule == "interleaved_lines" and mapping.tiling is not None and mapping.tiling.side == lines
    x, y = (torch.empty(shape, dtype=dtype) for shape in ((1, 384, 196), (1, 196, 384)))
    mapping = mapping_of(norm, x, y, torch.empty(384))
    assert mapping.tiling is not None and mapping.tiling.side == 4  # Of more, SMs would have no block.


def test_short_lines_share_a_warp() -> None:
    """Four lines of a warp, and those of the other warps of a block, find sectors in its cache."""

    def tokens(x: Tensor, weights: Tensor) -> Tensor:
        return functional.layer_norm(x.mT, weights.shape, weights).contiguous()

    assert mapping_of(tokens, torch.empty(64, 192, 784), torch.empty(192)).rule == "register_lines"
    assert mapping_of(tokens, torch.empty(64, 768, 196), torch.empty(768)).rule == "interleaved_lines"


def test_lines_that_are_read_as_they_lie_and_stored_across_them(needs_intrinsics: None) -> None:
    """With moments each thread read a line of its own: a layer norm of Whisper took 147 us, in two kernels 8.9."""

    def norm_into(x: Tensor, y: Tensor, out: Tensor) -> Tensor:
        total = x.t() + y
        mean = total.mean(1, keepdim=True)
        squares = ((total - mean) * (total - mean)).sum(1, keepdim=True)
        return out.copy_((total - mean) * torch.rsqrt(squares + 1))

    x, y, out = (torch.randint(-8, 9, shape).float() for shape in ((96, 140), (140, 96), (96, 140)))
    (kernel,) = check_values(norm_into, x, y, out.t(), tolerance=1e-5)
    assert "adjacent='x0'" in kernel.text and "moments" not in kernel.text
