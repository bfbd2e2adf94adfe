"""Outputs that are computed together, for rows of which the number is known when the kernel is called."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from halide_backend.inspection.compiled import compile_for
from halide_backend.schedule.cpu.choose import cpu_steps
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import BoundExtent, Parallel, Split, Step


def sums_and_maxima(*, fixed: bool, several: bool = True) -> StageGraph:
    """The sum of each of 4,000 rows, and its maximum."""
    row, along = Loop("x0", 4000, "x0", fixed), Loop("r_0$x", 100, "x1", fixed)
    stages: list[Stage] = []
    for number, kind in enumerate(("sum", "max")[: 1 + several]):
        rows = replace(along, name="x1")
        operand = Stage(f"operand_{number}", Role.INLINE, (rows, row), contiguous={"x1": 1_600_000})
        total = Stage(f"{kind}_0", Role.REDUCTION, (row,), (operand.name,), (along,), kind)
        stages += [operand, total]
        stages.append(Stage(f"out_ptr{number}", Role.OUTPUT, (row,), calls=(total.name,), contiguous={"x0": 16_000}))
    return StageGraph(tuple(stages), ("x0",))


def steps_of(graph: StageGraph) -> tuple[Step, ...]:
    steps = cpu_steps(graph, Mapping(), Cpu(64), Choices())
    check(graph, steps)
    return steps


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (sums_and_maxima(fixed=False), True),
        (sums_and_maxima(fixed=True), False),
        (sums_and_maxima(fixed=False, several=False), False),
    ],
    ids=["computed", "known", "one output"],
)
def test_each_step_computes_one_row_of_an_unknown_number(graph: StageGraph, said: bool) -> None:
    steps = steps_of(graph)
    single = {(step.func, step.var, step.extent) for step in steps if isinstance(step, BoundExtent)}
    shared = {step.var for step in steps if isinstance(step, Parallel)}
    assert (("sum_0_lanes", "x0", 1) in single) == said
    assert ("x0" in shared) == said, "several rows in a task have a guard"


def statistics(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    scale = torch.rsqrt(variance + 1e-5)
    return (x - mean) * scale, mean, scale, x.amax(-1)


def columns(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.sum(1), x.amax(1), x - x.mean(1, keepdim=True)


@pytest.mark.parametrize("function", [statistics, columns])
def test_results_are_right_whatever_the_sizes_are(function: object) -> None:
    compiled = compile_for("halide_backend", function, dynamic=True)
    for sizes in ((40, 33, 50), (3, 2, 100), (7, 16, 16), (2, 5, 3), (41, 2, 17)):
        x = torch.randn(sizes)
        for got, wanted in zip(compiled.call(x), function(x.double()), strict=True):
            torch.testing.assert_close(got.double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("length", "width"), [(100, 16), (129, 16), (197, 16), (300, 64), (513, 64), (1000, 64)])
def test_accumulators_are_as_many_as_a_row_fills(length: int, width: int) -> None:
    """The last step of a row runs all of them, masked: of 129 elements it has one."""
    graph = sums_and_maxima(fixed=False, several=False)
    stages = tuple(
        replace(stage, updates=tuple(replace(loop, extent=length) for loop in stage.updates)) for stage in graph.stages
    )
    steps = steps_of(replace(graph, stages=stages))
    assert [step.factor for step in steps if isinstance(step, Split) and step.old == "r_0$x"] == [width]


def test_rows_of_other_lengths_are_right() -> None:
    compiled = compile_for("halide_backend", lambda x: (x.logsumexp(-1), x.argmax(-1)), dynamic=True)
    for length in (129, 1, 15, 16, 64, 65, 128, 197, 1000):
        x = torch.randn(50, length)
        torch.testing.assert_close(compiled(x), (x.logsumexp(-1), x.argmax(-1)))
    compiled.check_code()


@pytest.mark.parametrize("length", [33, 60, 300])
def test_what_is_made_of_a_computed_number_of_rows_is_made_of_a_vector_of_them(length: int) -> None:
    """The last vector begins earlier; fewer rows than a vector are computed one by one."""
    compiled = compile_for("halide_backend", lambda x: x.logsumexp(-1), dynamic=True)
    for rows, columns in ((3000, length), (2999, length - 1), (17, 33), (16, 16), (15, 2), (5, 1025), (2, 64), (0, 7)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(compiled(x), x.double().logsumexp(-1).float(), rtol=1e-5, atol=1e-5)
    assert any(
        re.search(r"Split\('out_ptr0', 'x0', 'x0_o', 'x0_v', \d+, tail='ShiftInwards'\)", c) for c in compiled.codes
    )
    assert not compiled.delegated and set(compiled.kernels()) == {"halide_backend"}
