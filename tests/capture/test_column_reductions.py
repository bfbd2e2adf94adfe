"""Reductions over the first dimension whose rows threads share: a part of them for each task, then the parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from halide_backend import pipeline
from halide_backend.pipeline import current_target
from halide_backend.schedule.device import device_of
from halide_backend.schedule.steps import ComputeAt, Parallel, Reorder, RFactor, Split, Vectorize

Check = Callable[..., dict[str, Any]]

#: Lengths that parts divide and do not; columns that fill vectors, a part of one, and blocks.
SHAPES = ((1024, 1024), (1031, 997), (5000, 37), (513, 1016), (40_000, 3))

FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(0),
    "largest": lambda x: (x.amax(0), x.argmin(0)),
    "any": lambda x: (x > 3).any(0),
    "product": lambda x: (1 + x / 100).prod(0),
    "normalised": lambda x: (x - x.mean(0)) * torch.rsqrt(x.var(0) + 1),
    "softmax": lambda x: torch.softmax(x, 0),
    "several": lambda x: (x.sum(0), x.relu().sum(0), x.abs().amax(0) + 1),
}


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The steps of all kernels that are planned from now on."""
    found: list[Any] = []
    schedule = pipeline.schedule_kernel

    def watched(*arguments: Any) -> Any:
        scheduled = schedule(*arguments)
        found.extend(scheduled.kernel.plan.steps)
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_kernel", watched)
    return found


def numbers(shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)) * 2


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_threads_share_rows(check: Check, steps: list[Any], name: str, shape: tuple[int, int]) -> None:
    check(FUNCTIONS[name], numbers(shape), tolerance=2e-4)
    parts = {step.func for step in steps if isinstance(step, Parallel) and step.var == "part"}
    assert parts == {step.into for step in steps if isinstance(step, RFactor) and step.into.endswith("_parts")} != set()
    # Threads are started once for all parts, not once for each row.
    orders = {step.func: step.order for step in steps if isinstance(step, Reorder) and step.update == 0}
    assert {orders[name][-1] for name in parts} == {"part"}


@pytest.mark.parametrize("threads", [1, 2])
def test_parts_do_not_depend_on_the_number_of_threads(check: Check, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        check(lambda x: x.sum(0), numbers((2051, 70)).double(), tolerance=1e-12)
    finally:
        torch.set_num_threads(before)


def test_few_rows_are_one_part(check: Check, steps: list[Any]) -> None:
    check(lambda x: x.sum(0), numbers((511, 1024)), tolerance=1e-4)
    assert not any(isinstance(step, RFactor) and step.into.endswith("_parts") for step in steps)


def test_dynamic_rows(check: Check, steps: list[Any]) -> None:
    check(lambda x: torch.softmax(x, 0), numbers((1500, 70)), dynamic=True)
    assert any(isinstance(step, Parallel) and step.var == "part" for step in steps)


def test_rows_of_several_loops_are_shared(check: Check, steps: list[Any]) -> None:
    """Of a channels-last picture without its border, which are no single loop; each part is some lines of it."""
    picture = numbers((4, 70, 66, 96)).permute(0, 3, 1, 2)
    check(lambda x: x[:, :, 1:-1, 1:-1].sum((0, 2, 3)), picture, tolerance=1e-3)
    (part,) = [step for step in steps if isinstance(step, Parallel) and step.var == "part"]
    order = next(s.order for s in steps if isinstance(s, Reorder) and s.func == part.func and s.update == 0)
    assert order[-1] == "part"


def gradient(g: Tensor, s: Tensor, x: Tensor) -> Tensor:
    """SiLU's, whose operations are worth storing."""
    return g * s * (x * (1 - s) + 1) + g / (1 + x * x)


@pytest.mark.parametrize("shape", [(1031, 96), (200, 512), (64, 1152), (2048, 33)], ids=str)
def test_what_sums_of_the_same_rows_share_is_not_stored(check: Check, steps: list[Any], shape: tuple[int, int]) -> None:
    operands = [numbers(shape).roll(shift) for shift in range(4)]
    check(lambda g, s, x, y: (gradient(g, s, x).sum(0), (gradient(g, s, x) * y).sum(0)), *operands, tolerance=5e-3)
    assert not any(isinstance(step, ComputeAt) and step.func.startswith(("add", "mul")) for step in steps)
    assert {step.func.partition("_")[0] for step in steps if isinstance(step, RFactor)} == {"reductions"}


@pytest.mark.parametrize("rows", [128, 100, 7])
def test_a_reduction_beside_them_runs_along_its_own_memory(check: Check, steps: list[Any], rows: int) -> None:
    """What the sums of columns are divided by is the sum of a row, of another operand."""
    x, mask = numbers((16, rows, 384)), numbers((16, rows)).abs() + 1
    check(lambda x, mask: (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), x, mask, tolerance=1e-5)
    vectors = {step.var for step in steps if isinstance(step, Vectorize) and step.func.startswith("sum_0")}
    assert not any(name.startswith("x0") for name in vectors)


FEW_COLUMNS: dict[str, Callable[[Tensor], Any]] = {
    "sum": lambda x: x.sum(1),
    "largest": lambda x: x.amax(1),
    "below the largest": lambda x: x - x.amax(1, keepdim=True) + x.sum(1, keepdim=True),
    "moments": lambda x: (x.sum(1), x.square().sum(1)),
}


@pytest.mark.parametrize(
    ("rows", "columns", "chains"), [(64, 9, 4), (48, 16, 4), (100, 32, 2), (33, 9, 0), (64, 100, 0)]
)
@pytest.mark.parametrize("name", FEW_COLUMNS)
def test_few_columns_have_several_accumulators(
    check: Check, steps: list[Any], name: str, rows: int, columns: int, chains: int
) -> None:
    """Each addition would wait for that of the row before it."""
    check(FEW_COLUMNS[name], numbers((300, rows, columns)), tolerance=2e-4)
    counts = {
        step.factor for step in steps if isinstance(step, Split) and step.inner.endswith("_u") and "$" in step.old
    }
    both = name in ("moments", "below the largest")
    lanes = device_of(current_target("cpu")).vector_bytes // 4
    if lanes == 16:
        assert counts == ({chains // 2} - {0, 1} if both else {chains} - {0})
