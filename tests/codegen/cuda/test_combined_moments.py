"""Means and squared deviations of parts of a column, each with a number of values: memory is read once."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch._inductor.ir as ir
from cuda_programs import TARGET, programs_of
from kernel_values import CudaKernel, check_values
from torch import Tensor

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import LoopProgram, Reduction
from halide_backend.program.moments import MOMENTS
from halide_backend.schedule.device import device_of
from halide_backend.schedule.mapping.prepared import prepared

DEVICE = device_of(TARGET)


def combined(mean: Tensor, squares: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What Inductor combines parts by, as it is captured: all operands are loaded first."""
    weight = torch.where(squares < 0, 0.0, weight)
    count = weight.sum(1)
    whole = (mean * weight).sum(1) / count.clamp(min=1)
    deviation = mean - whole[:, None]
    return whole, (squares + deviation * deviation * weight).sum(1), count


def parts(shape: tuple[int, ...], mean: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """A third of them without values, but not the first ones, and all of the last third of the first column."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) + mean
    weight = torch.randint(0, 3, shape, generator=generator).float()
    weight[:, 0], weight[:, shape[1] * 2 // 3 :, 0] = 1, 0
    return values, torch.rand(shape, generator=generator) * weight, weight


def kinds(program: LoopProgram) -> set[str]:
    values = prepared(program, DEVICE).values
    return {value.attribute.kind for value in values if isinstance(value.attribute, Reduction)}


def check(operands: tuple[Tensor, ...], knobs: Any = None, values: int = 10) -> None:
    """Of a chunk of `values` squares may be as many times larger than what is left of them: see the formula's module,
    kernel_library/cuda/moments.py."""
    (program,) = programs_of(combined, operands)
    assert kinds(program) == {*MOMENTS, "sum"}
    results = [torch.full((operands[0].shape[0], operands[0].shape[2]), -1.0) for _ in range(3)]
    CudaKernel(plan_kernel(program, DEVICE, knobs).text).on_tensors(*operands, *results)
    mean, squares, count = combined(*(operand.double() for operand in operands))
    scale = operands[0].double().abs().amax(1)
    own_count, own_mean, own_squares = results
    assert torch.equal(own_count.double(), count)
    assert ((own_mean - mean).abs() <= 4e-7 * scale).all()
    # Where a mean is rounded by r, n values are off by r each.
    rounding = count * (1e-7 * scale) ** 2
    assert ((own_squares - squares).abs() <= 3e-7 * values * squares + 4 * rounding).all(), (own_squares, squares)


#: By one thread and by several; of whole chunks, and not.
SHAPES = [(2, 96, 48), (1, 67, 24), (2, 203, 16), (1, 131, 8)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("mean", [0.0, 3e4])
def test_values(shape: tuple[int, ...], mean: float, needs_intrinsics: None) -> None:
    check(parts(shape, mean))


@pytest.mark.parametrize("applies", [True, False])
def test_a_first_value_far_from_all_others(applies: bool, needs_intrinsics: None) -> None:
    means, squares, weight = parts((2, 96, 16), 0.0)
    means[:, 0] = 1e6
    check((means, squares, weight), {"column_groups.applies": applies}, values=64)


def test_a_first_part_without_values(needs_intrinsics: None) -> None:
    """Nothing is measured from it, however far it is from all others."""
    means, squares, weight = parts((2, 96, 16), 0.0)
    means[:, 0], weight[:, 0] = 1e6, 0
    scaled = (means * (weight > 0), squares, weight)
    check(scaled)
    (program,) = programs_of(combined, (means, squares, weight))
    far, near = ([torch.empty(2, 16) for _ in range(3)] for _ in range(2))
    kernel = CudaKernel(plan_kernel(program, DEVICE).text)
    kernel.on_tensors(means, squares, weight, *far)
    kernel.on_tensors(*scaled, *near)
    assert all(map(torch.equal, far, near))


def test_no_values_have_no_mean(needs_intrinsics: None) -> None:
    means, squares, weight = parts((2, 96, 16), 5.0)
    check((means, squares * 0, weight * 0))


def test_one_large_part_without_values(needs_intrinsics: None) -> None:
    """The square of its deviation overflows, and 0 times that would be no number."""
    means, squares, weight = parts((2, 96, 16), 0.0)
    means[:, 40], weight[:, 40] = 1e30, 0
    check((means * (weight > 0), squares, weight))


def _split(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let Inductor divide columns among threads as on a GPU, into `count` parts."""

    def splits(*args: Any, reduction_numel: Any = None, **kwargs: Any) -> tuple[Any, int]:
        known = not getattr(reduction_numel, "is_symbol", False)
        return ir.ReductionHint.OUTER, 1 if known and (
            not reduction_numel.is_number or reduction_numel <= 16
        ) else count

    monkeypatch.setattr(ir.Reduction, "num_splits", staticmethod(splits))


def test_parts_beyond_the_end(monkeypatch: pytest.MonkeyPatch, needs_intrinsics: None) -> None:
    """17 rows in 16 parts of 2, of which 7 have none: their mean was 0 / 0, and so was that of all."""
    _split(monkeypatch, 16)
    rows, few = torch.randn(70, 8), torch.randn(17, 8)
    check_values(lambda x: torch.var_mean(x, 0), rows, dynamic=True, others=[(few,)], tolerance=1e-4)


def test_long_parts_of_unknown_length(monkeypatch: pytest.MonkeyPatch, needs_intrinsics: None) -> None:
    _split(monkeypatch, 16)
    rows, few = torch.randn(16 * 40 - 3, 8) + 100, torch.randn(39, 8) * 3
    calls: list[Any] = []
    check_values(lambda x: torch.var_mean(x, 0), rows, dynamic=True, others=[(few,)], tolerance=1e-4, calls=calls)
    assert any(kinds(call.program) > {*MOMENTS} for call in calls)
