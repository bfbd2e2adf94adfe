"""Halves of an axis that change places, as in rotary embeddings, are one load without a mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel
from torch import Tensor
from torch._inductor import config as inductor_config

from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.program.halves import with_joined_halves
from halide_backend.program.index import Mod
from halide_backend.program.loop_program import Load, LoopProgram
from halide_backend.schedule.device import device_of


def turned(x: Tensor, at: int) -> Tensor:
    return torch.cat((-x[..., at:], x[..., :at]), -1)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return x * cos + turned(x, x.shape[-1] // 2) * sin


def sums(x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    return (g * x).sum(0), (g * turned(x, x.shape[-1] // 2)).sum(0)


def captured(function: Callable[..., Any], *arguments: Tensor) -> LoopProgram:
    # As Inductor lowers a concatenation on a GPU.
    with inductor_config.patch(force_pointwise_cat=True):
        (program,) = programs_of(function, arguments)
    return program


def loads(program: LoopProgram) -> list[Load]:
    return [value.attribute for value in program.values if isinstance(value.attribute, Load)]


def run(program: LoopProgram, *tensors: Tensor) -> tuple[PlannedKernel, CudaKernel]:
    planned = plan_kernel(program, device_of(TARGET))
    kernel = CudaKernel(planned.text)
    kernel.on_tensors(*tensors)
    return planned, kernel


def integers(*shape: int, dtype: torch.dtype) -> Tensor:
    """Numbers whose products and sums are exact."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rotary_heads_are_read_in_vectors(dtype: torch.dtype, needs_intrinsics: None) -> None:
    x, cos, sin = (integers(*shape, dtype=dtype) for shape in ((2, 3, 9, 64), (9, 64), (9, 64)))
    program = captured(rotated, x, cos, sin)
    found = torch.full_like(x, -99)
    _, kernel = run(program, x, cos, sin, found)
    assert torch.equal(found, rotated(x, cos, sin))
    assert len(loads(program)) == 5 and len(loads(with_joined_halves(program))) == 4
    assert kernel.code.count("ld.global") == 4 and kernel.code.count("v4.b32") + kernel.code.count("v2.b64") >= 4


def test_sums_of_turned_halves_are_of_words(needs_intrinsics: None) -> None:
    """Each thread read single numbers under two masks: the gradient of rotary heads of 128 x 4 x 1024 x 64 bfloat16
    took 98 us on an H200, and takes 83."""
    x, g = (integers(40, 3, 64, dtype=torch.bfloat16) for _ in range(2))
    program = captured(sums, x, g)
    found = torch.full((2, 3, 64), -99, dtype=torch.bfloat16)
    planned, _ = run(program, g, x, *found)
    tiling = planned.plan.mapping.tiling
    assert tiling is not None and tiling.elements == 2
    for got, wanted in zip(found, sums(x.double(), g.double()), strict=True):
        torch.testing.assert_close(got.double(), wanted, rtol=2**-7, atol=0)


@pytest.mark.parametrize("length", [128, 1024])
def test_lines_of_turned_halves(length: int, needs_intrinsics: None) -> None:
    """Under masks the threads of half a line branched around what all of them exchange."""
    x, g = (integers(3, 24, length, dtype=torch.float32) for _ in range(2))
    program = captured(lambda x, g: torch.softmax(x * 0.5 + turned(x, length // 2) * g, -1), x, g)
    found = torch.full_like(x, -99)
    _, kernel = run(program, x, g, found)
    torch.testing.assert_close(found, torch.softmax(x * 0.5 + turned(x, length // 2) * g, -1))
    assert "shfl.sync" in kernel.code


@pytest.mark.parametrize("step", [1, 3])
def test_halves_of_any_axis(step: int) -> None:
    x = torch.zeros(6, 32, step)
    program = captured(lambda x: torch.cat((x[:, 16:] * 2, x[:, :16] + 1), 1), x)
    (load,) = loads(with_joined_halves(program))
    assert load.index.has(Mod) and not load.coordinates


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: turned(x, 5),
        lambda x, y: torch.cat((x[..., 16:], y[..., :16]), -1),
        lambda x, y: torch.cat((x[..., :16], x[..., :16]), -1),
        lambda x, y: torch.cat((x[..., 16:].flip(-1), x[..., :16]), -1),
    ],
    ids=["not the middle", "two tensors", "the same half", "backwards"],
)
def test_other_parts_keep_their_masks(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    program = captured(function, torch.zeros(8, 32), torch.ones(8, 32))
    assert with_joined_halves(program) is program
