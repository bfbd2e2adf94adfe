"""Elements that are looked up and stored one after another, without vectors of them."""

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
from halide_backend.schedule.steps import ComputeWith, Step, Unroll, Vectorize

TARGET = Target.named("avx512")


def table(x: Tensor, i: Tensor) -> Tensor:
    return x.view(-1)[i]


def along_rows(x: Tensor, i: Tensor) -> Tensor:
    return x.gather(1, i)


def scaled(x: Tensor, i: Tensor) -> Tensor:
    return x.view(-1)[i] * 2 + 1


def columns(x: Tensor, i: Tensor) -> Tensor:
    return x.index_select(1, i[0])


def rows(x: Tensor, i: Tensor) -> Tensor:
    return F.embedding(i[:, 0], x)


def at_two_places(x: Tensor, i: Tensor) -> Tensor:
    return x[i, i // 2]


def exponentials(x: Tensor, i: Tensor) -> Tensor:
    return x.view(-1)[i].exp()


def operands(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(7)
    x = torch.randint(0, 250, (60, 70), generator=source).to(dtype)
    return x, torch.randint(0, 60, (50, 701), generator=source)


def steps_of(function: Callable[..., Tensor], *, dynamic: bool = False, **knobs: bool) -> list[Step]:
    """The steps of the one kernel of `function`, but for those of its check's reduction."""
    (kernel,) = captured_kernels(function, operands(), TARGET, dynamic)
    plan = plan_kernel(kernel.program, device_of(TARGET), {name.replace("_", "."): on for name, on in knobs.items()})
    return [step for step in plan.plan.steps if not step.func.startswith("failed")]


def in_vectors(steps: list[Step]) -> bool:
    """Whether the elements of the output are in vectors; otherwise several of them are one iteration."""
    found = {type(step) for step in steps if step.func == "out_ptr0" and isinstance(step, (Vectorize, Unroll))}
    assert Vectorize in found or Unroll in found
    return Vectorize in found


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [table, along_rows, scaled, columns])
def test_elements_that_are_moved_are_single(function: Callable[..., Tensor], dynamic: bool) -> None:
    assert not in_vectors(steps_of(function, dynamic=dynamic))
    assert in_vectors(steps_of(function, dynamic=dynamic, lookups_singly=False))


@pytest.mark.parametrize("function", [rows, at_two_places, exponentials])
def test_rows_and_what_is_computed_are_in_vectors(function: Callable[..., Tensor]) -> None:
    assert in_vectors(steps_of(function))


@pytest.mark.parametrize("function", [table, along_rows])
def test_indices_of_unknown_number_are_checked_where_they_are_used(function: Callable[..., Tensor]) -> None:
    assert any(isinstance(step, ComputeWith) for step in steps_of(function, dynamic=True))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.uint8, torch.int64, torch.bool]
)
@pytest.mark.parametrize("function", [table, along_rows, columns])
def test_elements_are_those_of_eager(function: Callable[..., Tensor], dtype: torch.dtype, dynamic: bool) -> None:
    x, i = operands(dtype)
    found = compile_for("halide_backend", function, dynamic=dynamic)
    before = halide_backend.stats()
    for length in (701, 700, 33, 17, 16, 3):
        torch.testing.assert_close(found(x, i[:, :length]), function(x, i[:, :length]), rtol=0, atol=0)
    for key in ("delegation_reasons", "unfusing_reasons"):
        assert halide_backend.stats()[key] == before[key]
    outside = i.clone()
    outside[0, -1] = x.numel()
    with pytest.raises(IndexError):
        found(x, outside)


@pytest.mark.parametrize("function", [table, along_rows, scaled, columns])
def test_elements_without_avx512_are_those_of_eager(function: Callable[..., Tensor]) -> None:
    x, i = operands(torch.bfloat16)
    found = compile_for("halide_backend", function, options={"halide_backend.target": "avx2"})
    torch.testing.assert_close(found(x, i), function(x, i), rtol=0, atol=0)
