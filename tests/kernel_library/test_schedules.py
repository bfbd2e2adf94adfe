"""A schedule decides how fast a kernel is, never what it computes: one program under several legal schedules."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch
from kernel import Builder

from halide_backend.program.loop_program import Reduction
from halide_backend.schedule.cpu.choose import cpu_steps
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.plan import Plan
from halide_backend.schedule.stage import Role, StageGraph
from halide_backend.schedule.steps import ComputeRoot, Step

Steps: TypeAlias = tuple[Step, ...]

STORED = (Role.REDUCTION, Role.SHARED, Role.PRESERVED, Role.STAGED_LOAD)


def rules(graph: StageGraph, vector_bytes: int) -> Steps:
    return cpu_steps(graph, Mapping(), Cpu(vector_bytes), Choices())


def everything_first(graph: StageGraph) -> Steps:
    """Serial scalar loops; whatever may be stored is computed as a whole, before everything else."""
    return tuple(ComputeRoot(stage.name) for stage in graph.stages if stage.role in STORED)


def reductions_first(graph: StageGraph) -> Steps:
    """Serial scalar loops; everything but reductions is computed wherever it is used."""
    return tuple(ComputeRoot(s.name) for s in graph.stages if s.role is Role.REDUCTION)


def read_back(graph: StageGraph) -> Steps:
    """The rules' schedule after a journey through its JSON form."""
    return Plan.from_json(json.loads(json.dumps(Plan(Mapping(), rules(graph, 32)).to_json()))).steps


SCHEDULES: dict[str, Callable[[StageGraph], Steps]] = {
    "64 bytes": lambda graph: rules(graph, 64),
    "32 bytes": lambda graph: rules(graph, 32),
    "16 bytes": lambda graph: rules(graph, 16),
    "from JSON": read_back,
    "everything first": everything_first,
    "reductions first": reductions_first,
}


def pointwise(extents: tuple[int, ...]) -> tuple[Builder, list[torch.Tensor], bool]:
    """Two outputs over the same loops, one of them narrow."""
    builder = Builder(extents)
    a, b = builder.load(torch.float32), builder.load(torch.float32)
    total = builder.value("add", torch.float32, [a, b])
    larger = builder.value("gt", torch.bool, [a, b])
    builder.store(builder.value("where", torch.float32, [larger, total, a]), torch.float32)
    builder.store(larger, torch.bool)
    builder.store(builder.value("to_dtype", torch.bfloat16, [total]), torch.bfloat16)
    return builder, [torch.randn(extents), torch.randn(extents)], True


def softmax(extents: tuple[int, ...]) -> tuple[Builder, list[torch.Tensor], bool]:
    builder = Builder(extents)
    over = (builder.axes[-1],)
    x = builder.load(torch.float32)
    top = builder.value("reduction", torch.float32, [x], Reduction("max", over))
    power = builder.value("exp", torch.float32, [builder.value("sub", torch.float32, [x, top])])
    total = builder.value("reduction", torch.float32, [power], Reduction("sum", over))
    builder.store(builder.value("truediv", torch.float32, [power, total]), torch.float32)
    builder.store(top, torch.float32)
    return builder, [torch.randn(extents)], False


def integers(extents: tuple[int, ...]) -> tuple[Builder, list[torch.Tensor], bool]:
    """Sums of rows and of columns, the largest element and its place."""
    builder = Builder(extents)
    x = builder.load(torch.int64)
    last, first = (builder.axes[-1],), (builder.axes[0],)
    for kind, over in (("sum", last), ("sum", first), ("max", last), ("prod", first)):
        builder.store(builder.value("reduction", torch.int64, [x], Reduction(kind, over)), torch.int64)
    place = builder.value("reduction", torch.int64, [x], Reduction("argmax", last, last[0].symbol))
    builder.store(place, torch.int64)
    return builder, [torch.randint(-(2**62), 2**62, extents)], True


CASES = (pointwise, softmax, integers)


@pytest.mark.parametrize("extents", [(5, 17), (64, 64), (300, 33), (1, 1000), (3, 7, 129), (131, 7)], ids=str)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_every_legal_schedule_gives_the_same(case: Callable[..., object], extents: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    builder, arguments, exact = case(extents)  # type: ignore[misc]
    results = {name: builder.run(*arguments, schedule=rule) for name, rule in SCHEDULES.items()}
    reference = results.pop("reductions first")
    for name, found in results.items():
        for got, wanted in zip(found, reference):
            if exact:
                assert torch.equal(got, wanted), name
            else:
                torch.testing.assert_close(got, wanted, msg=name)


def test_the_reference_itself_is_right() -> None:
    builder, arguments, _ = softmax((20, 33))
    got, top = builder.run(*arguments, schedule=reductions_first)
    torch.testing.assert_close(got, torch.softmax(arguments[0], -1))
    assert torch.equal(top, arguments[0].amax(-1))
    builder, arguments, _ = integers((20, 33))
    rows, columns, largest, _, place = builder.run(*arguments, schedule=reductions_first)
    assert torch.equal(rows, arguments[0].sum(1))
    assert torch.equal(columns, arguments[0].sum(0))
    assert torch.equal(largest, arguments[0].amax(1))
    assert torch.equal(place, arguments[0].argmax(1))
