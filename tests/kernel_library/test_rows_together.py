"""Short rows with one result each: the last lanes of several rows are added up together, or row by row."""

from __future__ import annotations

import pytest
import torch
from kernel import Builder

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import Reduction
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import Split


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["sum", "prod"])
@pytest.mark.parametrize("shape", [(48, 16), (48, 37), (64, 64), (32, 4, 16), (32, 50, 20), (16, 3, 64)])
def test_values(shape: tuple[int, ...], kind: str, dtype: torch.dtype, together: bool) -> None:
    builder = Builder(shape)
    x = torch.randn(shape).to(dtype) * 0.05 + 1
    operand = builder.value("to_dtype", torch.float32, [builder.load(dtype)])
    over = Reduction(kind, builder.axes[1:])
    builder.store(builder.value("reduction", torch.float32, [operand], over), torch.float32)
    knobs = {"rows.across": together}
    steps = plan_kernel(builder.program(), device_of(Target.host()), knobs).plan.steps
    splits = [step for step in steps if isinstance(step, Split) and step.func.endswith("_0")]
    assert any(step.inner == "x0_v" for step in splits) is together
    (found,) = builder.run(x, knobs=knobs)
    rows = x.double().flatten(1)
    wanted = rows.sum(1) if kind == "sum" else rows.prod(1)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_of_two_passes() -> None:
    builder = Builder((64, 4, 16))
    x = builder.load(torch.float32)
    over = builder.axes[1:]
    total = builder.value("reduction", torch.float32, [x], Reduction("sum", over))
    mean = builder.value("truediv", torch.float32, [total, builder.constant(64.0, torch.float32)])
    deviation = builder.value("sub", torch.float32, [x, mean])
    square = builder.value("mul", torch.float32, [deviation, deviation])
    builder.store(mean, torch.float32)
    builder.store(builder.value("reduction", torch.float32, [square], Reduction("sum", over)), torch.float32)
    operand = torch.randn(64, 4, 16) + 3
    means, squares = builder.run(operand)
    rows = operand.double().flatten(1)
    torch.testing.assert_close(means.double(), rows.mean(1), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(squares.double(), rows.var(1, correction=0) * 64, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("divisor", [64.0, -0.25, 2.0**99, 3.0, 0.0, 2.0**127, float("inf")])
def test_a_quotient_by_a_power_of_two_is_a_product(divisor: float) -> None:
    builder = Builder((64,))
    x = builder.load(torch.float32)
    quotient = builder.value("truediv", torch.float32, [x, builder.constant(divisor, torch.float32)])
    builder.store(quotient, torch.float32)
    special = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-40, -3e-39, 3.4e38])
    operand = torch.cat([special, torch.randn(56) * 1e3])
    (found,) = builder.run(operand)
    assert torch.equal(found.nan_to_num(7e7), (operand / divisor).nan_to_num(7e7))
    assert ("truediv" in builder.text()) is (divisor not in (64.0, -0.25, 2.0**99))
