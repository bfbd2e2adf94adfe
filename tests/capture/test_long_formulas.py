"""Formulas whose operations wait for each other: two registers at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from halide_backend.inspection.compiled import compile_for
from halide_backend.pipeline import current_target
from halide_backend.schedule.device import device_of
from halide_backend.schedule.plan import Plan


def registers() -> int:
    return device_of(current_target("cpu")).vector_registers


def check(function: Callable[..., Any], *arguments: Tensor) -> None:
    compiled = compile_for("halide_backend", function)
    torch.testing.assert_close(compiled.call(*arguments), function(*arguments), rtol=2e-2, atol=2e-2)
    assert not compiled.delegated


def gated(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.sigmoid() * y + 1, x.tanh() * y


def gated_thrice(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (*gated(x, y), x.exp() - y)


def waves(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return x.sin() * y, y.cos() * x


@pytest.mark.parametrize(("function", "two"), [(gated, True), (gated_thrice, False), (waves, False)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_two_results_leave_room_for_two_registers(
    function: Callable[..., Any], two: bool, dtype: torch.dtype, plans: list[Plan]
) -> None:
    """The sine's branch for large angles is of one register."""
    check(function, torch.randn(30, 300).to(dtype), torch.randn(30, 300).to(dtype))
    (plan,) = plans
    assert (dict(plan.knobs)["vectors.bytes"] == 128) is (two and registers() == 32)


def test_joined_results_of_unknown_sizes_have_two_registers(plans: list[Plan]) -> None:
    """They are one Tuple: two results, though one output."""
    compiled = compile_for("halide_backend", gated, dynamic=True)
    for sizes in ((30, 300), (7, 1003), (2, 3)):
        x, y = torch.randn(sizes), torch.randn(sizes)
        torch.testing.assert_close(compiled.call(x, y), gated(x, y))
    assert not compiled.delegated
    assert {dict(plan.knobs)["vectors.bytes"] for plan in plans} == ({128} if registers() == 32 else {32})
