"""What is made of the results of rows, logarithms for example, for a vector of rows at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from captured_kernels import captured_kernels

import halide_backend
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import BoundExtent, ComputeAt, Split, Step, Vectorize

TARGET = Target.named("avx512")


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.log_softmax(x, -1)


def steps_of(*shape: int) -> tuple[Step, ...]:
    """The steps of the kernel of log-probabilities."""
    (kernel,) = captured_kernels(log_softmax, (torch.randn(shape),), TARGET, False)
    return plan_kernel(kernel.program, device_of(TARGET)).plan.steps


@pytest.mark.parametrize(("rows", "cut"), [(64, False), (77, True)])
def test_logarithms_are_a_vector_of_rows(rows: int, cut: bool) -> None:
    steps = steps_of(rows, 37)
    logarithm = [step for step in steps if getattr(step, "func", "") == "log_0"]
    assert Vectorize("log_0", "x0_v") in logarithm
    assert Split("log_0", "x0", "x0_o", "x0_v", 16) in logarithm
    (place,) = (step for step in logarithm if isinstance(step, ComputeAt))
    (maximum,) = (step for step in steps if isinstance(step, ComputeAt) and step.func == "max_0")
    assert (place.var, place.consumer) == (maximum.var, maximum.consumer), "the reductions of these rows are beside it"
    whole = {step.func for step in steps if isinstance(step, BoundExtent) and step.extent == 16}
    assert whole == ({"max_0", "sum_0", "log_0"} if cut else set())


@pytest.mark.parametrize("columns", [10, 3000], ids=["vectors across rows", "more than a cache has room for"])
def test_other_rows_are_reduced_one_at_a_time(columns: int) -> None:
    steps = steps_of(77, columns)
    assert not any(isinstance(step, BoundExtent) for step in steps)


def products(x: torch.Tensor) -> torch.Tensor:
    """Log-probabilities that may be stored where the products that they are made of lie."""
    return F.log_softmax(x @ x.new_ones(x.shape[-1], x.shape[-1]).tril(), -1)


def losses(x: torch.Tensor) -> torch.Tensor:
    """A loss, whose kernel of the rows has two results of each, the largest element and a logarithm."""
    return F.cross_entropy(x, torch.arange(x.shape[0]) % x.shape[-1], reduction="none")


def divergences(x: torch.Tensor) -> torch.Tensor:
    """Two logarithms of each row, a reduction that needs them, and what is stored for each element."""
    p, q = F.log_softmax(x, -1), F.log_softmax(x * 0.5 + 1, -1)
    return p + (p.exp() * (p - q)).sum(-1, keepdim=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [log_softmax, products, losses, divergences])
def test_results_are_right_for_any_number_of_rows(function: Callable[..., torch.Tensor], dynamic: bool) -> None:
    halide_backend.reset_stats()
    compiled = compile_for("halide_backend", function, dynamic=True) if dynamic else None
    for shape in ((64, 37), (77, 37), (15, 33), (17, 50), (2, 300), (3, 5, 41), (2, 16, 16), (200, 2)):
        if function is losses and len(shape) == 3:
            continue
        x = torch.randn(shape)
        call = compiled.call if compiled and len(shape) == 2 else compile_for("halide_backend", function).call
        torch.testing.assert_close(call(x).double(), function(x.double()), rtol=2e-5, atol=2e-5)
    found = halide_backend.stats()
    assert found["native_kernels"] > 0
    assert (found["delegation_reasons"], found["unfusing_reasons"]) == ({}, {})
