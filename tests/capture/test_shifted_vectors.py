"""The last vector of a row of unknown length begins earlier, and shorter rows than a vector are right, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halide_backend
from halide_backend.codegen.cpu import builder
from halide_backend.schedule.mapping import cpu
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.steps import BoundStorage, Split

#: The first is what the plan is made for; then rows shorter than any vector, and about one and two of them.
WIDTHS = (230, 2, 6, 14, 16, 18, 30, 32, 34, 46, 64, 66, 130)


def shifted(plans: list[Plan]) -> list[str]:
    """The outputs with such vectors."""
    splits = [step for plan in plans for step in plan.steps if isinstance(step, Split)]
    return [step.func for step in splits if step.tail == "ShiftInwards"]


STRIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "average pooling": lambda x: F.avg_pool2d(x, 2),
    "maximum pooling": lambda x: F.max_pool2d(x, 3, 2, 1),
    "even and odd": lambda x: x[..., ::2] * x[..., 1::2] + 1,
    "down": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"),
    "rows": lambda x: (x.flip(-1) - x.amax(-1, keepdim=True)).exp().erf().tanh(),
    "stencil": lambda x: F.pad(x, (2, 2)).unfold(-1, 5, 1).exp().sum(-1),
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", STRIDED.values(), ids=STRIDED)
def test_all_widths(plans: list[Plan], function: Callable[[Tensor], Tensor], dtype: torch.dtype) -> None:
    compiled = torch.compile(function, dynamic=True)
    for width in WIDTHS:
        x = torch.randn(3, 5, 6, width, dtype=torch.float64).to(dtype)
        tolerance = 2**-6 if dtype is torch.bfloat16 else 1e-5
        torch.testing.assert_close(compiled(x), function(x), rtol=tolerance, atol=tolerance)
    assert "out_ptr0" in shifted(plans)
    assert halide_backend.stats()["delegation_reasons"] == {}


def test_what_is_overwritten_is_not_computed_twice(plans: list[Plan]) -> None:
    def in_place(x: Tensor, y: Tensor) -> Tensor:
        return x.copy_(x.exp().erf().exp().erf() + x * y)

    compiled = torch.compile(in_place, dynamic=True)
    for width in WIDTHS:
        x, y = torch.randn(21, width), torch.randn(21, 1)
        expected = in_place(x.clone(), y)
        compiled(x, y)
        torch.testing.assert_close(x, expected)
    assert plans and not shifted(plans)


@pytest.mark.parametrize("known", [True, False])
def test_no_operand_is_overwritten_and_read_again(
    plans: list[Plan], monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """Nothing else needs the product, and Inductor would store the result in its place. Where the rule does not see
    that, the plan keeps Inductor from it."""
    if not known:
        monkeypatch.setattr(builder, "replaces_operand", lambda store, program: False)

    def function(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return (a @ b).exp().erf().exp().erf() + c

    compiled = torch.compile(function, dynamic=True)
    for width in WIDTHS:
        a, b, c = torch.randn(21, 5), torch.randn(5, width), torch.randn(21, 1)
        torch.testing.assert_close(compiled(a, b, c), function(a, b, c))
    assert bool(shifted(plans)) is not known


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several outputs are Funcs of their own, as those of unlike axes are."""
    monkeypatch.setattr(cpu, "joined", lambda program, device, choices: False)


def test_outputs_of_one_func_begin_earlier(plans: list[Plan]) -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., ::2] * x[..., 1::2], x[..., ::2] - x[..., 1::2]

    compiled = torch.compile(both, dynamic=True)
    for width in WIDTHS:
        x = torch.randn(3, 7, width)
        for found, expected in zip(compiled(x), both(x)):
            torch.testing.assert_close(found, expected)
    assert shifted(plans)


def test_outputs_of_one_func_overwrite_no_operand() -> None:
    """Nothing else needs the product, and Inductor would store one of the results in its place."""

    def function(a: Tensor, b: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        product = a @ b
        return product.exp().erf().exp().erf() + c, product.sin().exp() - c

    compiled = torch.compile(function, dynamic=True)
    for width in WIDTHS:
        a, b, c = torch.randn(21, 5), torch.randn(5, width), torch.randn(21, 1)
        for found, expected in zip(compiled(a, b, c), function(a, b, c)):
            torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("apart")
def test_outputs_that_are_computed_together_share_guarded_loops(plans: list[Plan]) -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[..., ::2] * x[..., 1::2], x[..., ::2] - x[..., 1::2]

    compiled = torch.compile(both, dynamic=True)
    for width in WIDTHS:
        x = torch.randn(3, 7, width)
        for found, expected in zip(compiled(x), both(x)):
            torch.testing.assert_close(found, expected)
    assert plans and not shifted(plans)


#: Blocks of columns and their accumulators; several outputs share them behind guards.
COLUMNS: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(1),
    "softmax": lambda x: x.softmax(1),
    "variance": lambda x: x.var(1),
    "largest": lambda x: x.argmax(1),
}


@pytest.mark.parametrize("function", COLUMNS.values(), ids=COLUMNS)
def test_columns_of_all_widths(plans: list[Plan], function: Callable[[Tensor], Tensor]) -> None:
    compiled = torch.compile(function, dynamic=True)
    for width in (500, *WIDTHS):
        x = torch.randn(21, 40, width)
        torch.testing.assert_close(compiled(x), function(x))
    assert "out_ptr0" in shifted(plans)


@pytest.mark.usefixtures("apart")
def test_accumulators_of_outputs_together_are_on_the_stack(plans: list[Plan]) -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(1), x.exp().amax(1)

    compiled = torch.compile(both, dynamic=True)
    for width in (500, *WIDTHS):
        x = torch.randn(21, 40, width)
        for found, expected in zip(compiled(x), both(x)):
            torch.testing.assert_close(found, expected)
    rooms = {step.func for plan in plans for step in plan.steps if isinstance(step, BoundStorage)}
    assert {"sum_0", "max_0"} <= rooms or any(name.startswith("reductions") for name in rooms)
    assert not shifted(plans)
