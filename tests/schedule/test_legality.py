"""Old values of overwritten memory must be stored where all outputs share a loop."""

from __future__ import annotations

import pytest

from halide_backend.errors import IllegalPlan
from halide_backend.schedule.cpu.choose import cpu_steps
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.legality.check import check
from halide_backend.schedule.stage import Loop, Role, Stage, StageGraph
from halide_backend.schedule.steps import ComputeAt, ComputeWith, Step


def graph() -> StageGraph:
    loops = (Loop("x1", 1000, "x1"), Loop("x0", 64, "x0"))
    old = Stage("old", Role.PRESERVED, loops, contiguous={"x1": 256_000})
    first = Stage("first", Role.OUTPUT, loops, calls=("old",), contiguous={"x1": 256_000})
    second = Stage("second", Role.OUTPUT, loops, calls=("old",), contiguous={"x1": 256_000})
    return StageGraph((old, first, second), ("x0", "x1"))


def refused(*steps: Step) -> bool:
    try:
        check(graph(), steps)
    except IllegalPlan:
        return True
    return False


def test_a_shared_loop_is_legal() -> None:
    assert not refused(ComputeAt("old", "first", "x0"), ComputeWith("second", "first", "x0"))


@pytest.mark.parametrize(
    "steps",
    [
        (),
        (ComputeWith("second", "first", "x0"),),
        (ComputeAt("old", "first", "x0"),),
        (ComputeAt("old", "first", "x1"), ComputeWith("second", "first", "x0")),
        (ComputeAt("old", "second", "x0"), ComputeWith("second", "first", "x0")),
    ],
    ids=["nothing", "inlined", "separate loops", "below the shared loop", "inside the child"],
)
def test_anything_else_is_refused(steps: tuple[Step, ...]) -> None:
    assert refused(*steps)


def test_the_rules_are_legal() -> None:
    schedule = cpu_steps(graph(), Cpu(64), Choices())
    places = [step for step in schedule if isinstance(step, ComputeAt) and step.func == "old"]
    assert len(places) == 1
