"""Kernels over several axes of which some are dynamic move memory as those of known sizes do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_values import check_values
from torch import Tensor
from torch._inductor import config as inductor_config

from halide_backend.program.flattening import flattened
from halide_backend.program.loop_program import LoopProgram

Compile = Callable[..., Any]
HALF = 64


def rotary(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    return torch.cat([x[..., :HALF] * c - x[..., HALF:] * s, x[..., :HALF] * s + x[..., HALF:] * c], -1)


def rotated_halves(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    return x * c + torch.cat((-x[..., HALF:], x[..., :HALF]), -1) * s


def dynamic_in(x: Tensor, *dimensions: int) -> Tensor:
    """`x`, of which only those sizes are dynamic."""
    for dimension in range(x.dim()):
        (torch._dynamo.mark_dynamic if dimension in dimensions else torch._dynamo.mark_static)(x, dimension)
    return x


def embedding(
    form: Callable[..., Tensor], dtype: torch.dtype, batch: tuple[int, ...] = (), length: int = 256
) -> tuple[Tensor, ...]:
    """Operands of a rotary embedding; the length of the sequence and the `batch` dimensions are dynamic."""
    width = HALF if form is rotary else 2 * HALF
    x, *angles = (torch.randint(-8, 9, size).to(dtype) for size in ((2, 3, length, 2 * HALF), *[(length, width)] * 2))
    return (dynamic_in(x, 2, *batch), *(dynamic_in(angle, 0) for angle in angles))


@pytest.mark.parametrize("batch", [(), (0, 1)], ids=["length", "all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("form", "loads"), [(rotary, 7), (rotated_halves, 4)])
def test_a_rotary_embedding_of_any_length_moves_vectors(
    kernel: Compile, form: Callable[..., Tensor], loads: int, dtype: torch.dtype, batch: tuple[int, ...]
) -> None:
    """It was a hundred times slower: each thread stored its vector in local memory, and from there word by word. The
    halves that change places are one load (program/halves.py)."""
    with inductor_config.patch(force_pointwise_cat=True):
        code = kernel(form, *embedding(form, dtype, batch))
    assert code.wide_loads == code.loads == loads
    assert code.wide_stores == code.stores == 1
    # The row of the angles is a remainder, by a number whose reciprocal the host computes.
    assert code.count(r"\b(div|rem)\.[su](32|64)") == 0


@pytest.mark.parametrize("batch", [(), (0, 1)], ids=["length", "all"])
@pytest.mark.parametrize("form", [rotary, rotated_halves])
def test_values_of_a_rotary_embedding(form: Callable[..., Tensor], batch: tuple[int, ...]) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        with inductor_config.patch(force_pointwise_cat=True):
            check_values(form, *embedding(form, dtype, batch, length=11), dynamic=True)


def test_a_row_of_one_output_is_one_axis(dynamic: Compile) -> None:
    program: LoopProgram
    with inductor_config.patch(force_pointwise_cat=True):
        (program,) = dynamic(rotated_halves, *embedding(rotated_halves, torch.float32))
    assert len(program.outer) == 3 and len(program.stores) == 1
    outer, inner = flattened(program).outer
    assert (inner.extent, outer.hint) == (2 * HALF, 2 * 3 * 256)
