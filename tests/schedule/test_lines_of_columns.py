"""Copies whose vectors have one element of each line: all that lines hold is read before the next block."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from captured_kernels import captured_kernels
from torch import Tensor

import halide_backend
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import Reorder, Split

TARGET = Target.named("avx512")
SOME = [*range(3, 30), 2, 0, 1]


def picked_channels(x: Tensor) -> Tensor:
    return x[:, SOME].clone(memory_format=torch.contiguous_format)


def every_other_channel(x: Tensor) -> Tensor:
    return x[:, ::2].clone(memory_format=torch.contiguous_format)


def reversed_channels(x: Tensor) -> Tensor:
    return x.flip(1).clone(memory_format=torch.contiguous_format)


def more_channels(x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 0, 0, 2, 3)).clone(memory_format=torch.contiguous_format)


def turned(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def pictures(height: int, width: int) -> Tensor:
    source = torch.Generator().manual_seed(width)
    return torch.randn(3, 30, height, width, generator=source).to(memory_format=torch.channels_last)


def loops_of(function: Callable[[Tensor], Tensor], x: Tensor, lines: bool = True) -> tuple[tuple[str, ...], int]:
    """The loops of the output, innermost first, and the columns of a block of them."""
    (kernel,) = captured_kernels(function, (x,), TARGET, False)
    chosen = {} if lines else {"column_blocks.lines": False}
    steps = plan_kernel(kernel.program, device_of(TARGET), chosen).plan.steps
    (order,) = (step.order for step in steps if isinstance(step, Reorder) and step.func == "out_ptr0")
    block = {step.inner: step.factor for step in steps if isinstance(step, Split)}
    return order, max(block.get("x2_i", 0), block.get("x2_i_o", 0) * block.get("x2_i_v", 0))


@pytest.mark.parametrize("function", [picked_channels, every_other_channel, reversed_channels, more_channels])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_channels_are_inside_of_blocks(function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    order, block = loops_of(function, pictures(64, 66).to(dtype))
    assert order.index("x1") < order.index("x2_b")
    # Lines of 30 channels that half of 48 KiB holds.
    assert 16 <= block <= 384
    order, _ = loops_of(function, pictures(64, 66).to(dtype), lines=False)
    assert order.index("x1") > order.index("x2_b")


@pytest.mark.parametrize("function", [picked_channels, every_other_channel, reversed_channels, more_channels, turned])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (4, 16), (19, 23), (64, 66)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_they_hold_the_same(function: Callable[[Tensor], Tensor], shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = (pictures(*shape) * 50).to(dtype)
    torch._dynamo.reset()
    halide_backend.reset_stats()
    compiled = compile_for("halide_backend", function)
    torch.testing.assert_close(compiled.call(x), function(x), rtol=0, atol=0)
    assert not compiled.delegated
    assert halide_backend.stats()["unfusing_reasons"] == {}


def rows_apart(x: Tensor) -> Tensor:
    return x.permute(1, 0, 2).clone(memory_format=torch.contiguous_format)


@pytest.mark.parametrize(("elements", "interleaved"), [(4, True), (5, True), (6, False), (10, False)])
def test_longer_rows_that_lie_apart_are_vectors(elements: int, interleaved: bool) -> None:
    x = torch.randn(100, 97, elements).bfloat16()
    (kernel,) = captured_kernels(rows_apart, (x,), TARGET, False)
    choices = plan_kernel(kernel.program, device_of(TARGET)).plan.choices
    assert [each.setting for each in choices if each.key == "column_blocks.interleaved"] == [interleaved]
    assert torch.equal(compile_for("halide_backend", rows_apart).call(x), rows_apart(x))


# Rows of 577 elements begin anywhere in a line; 600 are whole tiles of 8, not of 16.
@pytest.mark.parametrize(
    ("shape", "side"), [((577, 600), 8), ((600, 577), 16), ((97, 10), 16), ((20000, 50), 16), ((37, 43), 8)]
)
def test_tiles_with_ends(shape: tuple[int, int], side: int) -> None:
    def function(x: Tensor) -> Tensor:
        return x.t().contiguous()

    x = torch.randn(shape)
    (kernel,) = captured_kernels(function, (x,), TARGET, False)
    plan = plan_kernel(kernel.program, device_of(TARGET)).plan
    assert plan.mapping.transposition is not None
    assert plan.mapping.transposition.side == side
    assert torch.equal(compile_for("halide_backend", function).call(x), function(x))


@pytest.mark.parametrize(("rows", "together"), [(8, 8), (9, 1), (7, 7), (4, 4), (32, 1)])
def test_rows_that_are_copied_together(rows: int, together: int) -> None:
    def function(x: Tensor) -> Tensor:
        return x.transpose(0, 1).contiguous()

    x = torch.randn(rows, 2048, 64)
    (kernel,) = captured_kernels(function, (x,), TARGET, False)
    choices = plan_kernel(kernel.program, device_of(TARGET)).plan.choices
    assert [each.setting for each in choices if each.key == "column_blocks.rows"] == [together]
    assert torch.equal(compile_for("halide_backend", function).call(x), function(x))
