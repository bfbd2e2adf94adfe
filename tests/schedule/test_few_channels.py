"""Pictures of a few channels, side by side in memory, where the other sizes are computed."""

from __future__ import annotations

import pytest
import torch
from captured_kernels import captured_kernels
from torch import Tensor

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import RFactor, Split, Unroll

#: Pictures, height and width.
SHAPES = [(4, 200, 200), (4, 1, 1), (2, 129, 131), (1, 64, 65), (3, 5, 150), (2, 0, 7), (2, 150, 80)]


def pictures(*shape: int) -> Tensor:
    return torch.randn(shape).to(memory_format=torch.channels_last)


def sums(x: Tensor) -> Tensor:
    return x.sum((2, 3))


def cropped(x: Tensor) -> Tensor:
    return x[:, :, 1:, 2:].contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", ["avx2", "avx512"])
@pytest.mark.parametrize("channels", [3, 13])
def test_a_few_channels_of_computed_many_pixels_lie_side_by_side(name: str, channels: int) -> None:
    """Inside a loop over pictures, where a guard for the last pixels is part of each."""
    target = Target.named(name)
    (kernel,) = captured_kernels(sums, (pictures(4, channels, 200, 200),), target, dynamic=True)
    variant = plan_kernel(kernel.program, device_of(target)).variant
    assert variant is not None
    assert any(isinstance(step, RFactor) and step.into.endswith("_several") for step in variant.steps)


@pytest.mark.parametrize("channels", [3, 7, 13, 24])
def test_sums_of_all_sizes(channels: int) -> None:
    compiled = compile_for("halide_backend", sums, dynamic=True)
    for count, height, width in SHAPES:
        x = pictures(count, channels, height, width)
        torch.testing.assert_close(compiled(x), sums(x.double()).float(), rtol=1e-5, atol=1e-3)
    assert set(compiled.kernels()) == {"halide_backend"} and not compiled.delegated
    lanes = device_of(Target.host()).vector_bytes // 4
    assert ("_several" in compiled.codes[0]) is (channels % lanes != 0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_as_many_rows_as_channels_are_computed_together(dynamic: bool) -> None:
    """Not the rows of a picture: a crop has a loop of its own for these."""
    target = Target.named("avx512")
    (kernel,) = captured_kernels(cropped, (torch.randn(4, 3, 200, 201),), target, dynamic=dynamic)
    planned = plan_kernel(kernel.program, device_of(target))
    plan = planned.variant or planned.plan
    together = {step.var for step in plan.steps if isinstance(step, Unroll)}
    assert [step.factor for step in plan.steps if isinstance(step, Split) and step.inner in together] == [3]


def test_crops_of_all_sizes() -> None:
    compiled = compile_for("halide_backend", cropped, dynamic=True)
    for shape in ((4, 3, 200, 201), (2, 3, 70, 33), (1, 3, 2, 300), (3, 3, 9, 3), (2, 5, 40, 50)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), cropped(x), rtol=0, atol=0)
    assert set(compiled.kernels()) == {"halide_backend"} and not compiled.delegated


@pytest.mark.parametrize("groups", [2, 4])
def test_all_channels_of_groups_may_be_half_a_vector(groups: int) -> None:
    """Two pixels of eight channels are a vector; each group alone would be a walk over all lines of a picture."""

    def norm(x: Tensor) -> Tensor:
        return torch.nn.functional.group_norm(x, groups)

    x = pictures(3, 8, 19, 31)
    target = Target.named("avx512")
    plans = [plan_kernel(each.program, device_of(target)).plan for each in captured_kernels(norm, (x,), target)]
    columns = {step.into for plan in plans for step in plan.steps if isinstance(step, RFactor)}
    assert any(name.endswith("_columns") for name in columns)
    compiled = compile_for("halide_backend", norm)
    torch.testing.assert_close(compiled(x), norm(x.double()).float(), rtol=1e-5, atol=1e-5)
    assert set(compiled.kernels()) == {"halide_backend"} and not compiled.delegated
