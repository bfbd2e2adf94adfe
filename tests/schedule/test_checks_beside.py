"""Checks of indices that each element has: in the loops that look the elements up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from captured_kernels import captured_kernels
from torch import Tensor

import halide_backend
from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import ComputeWith, Split, Step

TARGET = Target.named("avx512")


def taken(x: Tensor, i: Tensor) -> Tensor:
    return x.view(-1).take(i) * 2


def along_rows(x: Tensor, i: Tensor) -> Tensor:
    return x.gather(1, i)


def at_two_places(x: Tensor, i: Tensor) -> Tensor:
    return x[i, i // 2]


def rows(x: Tensor, i: Tensor) -> Tensor:
    return x[i[:, 0]]


def sums(x: Tensor, i: Tensor) -> Tensor:
    return x.gather(1, i).sum(1)


def steps_of(function: Callable[..., Tensor], *operands: Tensor, knobs: dict[str, bool] | None = None) -> list[Step]:
    kernels = captured_kernels(function, operands, TARGET, False)
    plans = [plan_kernel(kernel.program, device_of(TARGET), knobs).plan for kernel in kernels]
    return [step for plan in plans for step in plan.steps if isinstance(step, ComputeWith)]


def operands(rows: int, columns: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(rows)
    return torch.randn(40, 60, generator=source), torch.randint(0, 40, (rows, columns), generator=source)


@pytest.mark.parametrize(("function", "count"), [(taken, 1), (along_rows, 1), (at_two_places, 1), (rows, 0), (sums, 0)])
def test_each_element_is_checked_where_it_is_looked_up(function: Callable[..., Tensor], count: int) -> None:
    x, i = operands(40, 700)
    found = steps_of(function, x, i)
    assert len(found) == count
    assert {step.func for step in found} <= {"check_0"}
    if count:
        assert not steps_of(function, x, i, knobs={"checks.beside": False})


def test_bytes_of_a_check_are_reduced_in_whole_vectors() -> None:
    (kernel,) = captured_kernels(taken, operands(40, 700), TARGET, False)
    steps = plan_kernel(kernel.program, device_of(TARGET)).plan.steps
    lanes = [s.factor for s in steps if isinstance(s, Split) and s.func.startswith("failed_0") and s.inner == "lane_v"]
    assert lanes and set(lanes) == {64}


def test_memory_that_is_overwritten_is_checked_before() -> None:
    def replaced(i: Tensor, x: Tensor) -> Tensor:
        return i.copy_(x.take(i))

    i = torch.randint(0, 40, (30, 700))
    assert not steps_of(replaced, i, torch.arange(40))
    call = compile_for("halide_backend", replaced).call
    wanted = torch.arange(40).flip(0)[i]
    assert torch.equal(call(i, torch.arange(40).flip(0)), wanted)
    i[29, 699] = 40
    with pytest.raises(IndexError):
        call(i, torch.arange(40))


# Fewer than a vector, vectors and a part of one, blocks and a part of one, enough for threads.
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 16), (11, 33), (40, 257), (37, 4001)])
@pytest.mark.parametrize("function", [taken, along_rows, at_two_places])
def test_no_index_out_of_range_is_missed(function: Callable[..., Tensor], shape: tuple[int, int]) -> None:
    x, i = operands(*shape)
    if function is along_rows:
        x = x[: shape[0]]
        i %= 60
    torch._dynamo.reset()
    halide_backend.reset_stats()
    compiled = compile_for("halide_backend", function)
    with torch.no_grad():
        torch.testing.assert_close(compiled.call(x, i), function(x, i), rtol=0, atol=0)
        if function is not along_rows:  # Negative indices of gather are refused, not counted from the end.
            torch.testing.assert_close(compiled.call(x, i - 5), function(x, i - 5), rtol=0, atol=0)
        for row, column in ((0, 0), (shape[0] // 2, shape[1] // 2), (shape[0] - 1, shape[1] - 1)):
            for bad in (5000, -5000, 2**32, -(2**32) + 1, torch.iinfo(torch.int64).min):
                wrong = i.clone()
                wrong[row, column] = bad
                with pytest.raises(IndexError, match="index out of range"):
                    compiled.call(x, wrong)
    assert not compiled.delegated
    assert halide_backend.stats()["unfusing_reasons"] == {}
