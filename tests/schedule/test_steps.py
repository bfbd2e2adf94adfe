"""Schedules are data: each step survives JSON and its own text, and anything else is a typed error."""

from __future__ import annotations

from dataclasses import fields

import pytest

from halide_backend.errors import KernelTextError
from halide_backend.schedule import steps
from halide_backend.schedule.schedule import Schedule
from halide_backend.schedule.steps import Step

_EXAMPLES = {"str": "x0", "int": 16, "bool": True, "tuple[str, ...]": ("x0", "r_0$x")}


def example(kind: type[Step]) -> Step:
    return kind(*(_EXAMPLES[str(field.type)] for field in fields(kind)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", Step.kinds.values(), ids=lambda kind: kind.__name__)
def test_every_step_survives_json_and_text(kind: type[Step]) -> None:
    step = example(kind)
    assert Schedule.from_json(Schedule((step,)).to_json()).steps == (step,)
    assert eval(repr(step), vars(steps)) == step


def test_there_are_steps() -> None:
    assert {"Split", "Vectorize", "Parallel", "RFactor", "ComputeAt", "ComputeWith"} <= Step.kinds.keys()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 99, "steps": []}',
        '{"schema": 1, "steps": [{"step": "Explode"}]}',
        '{"schema": 1, "steps": [{"step": "Split"}]}',
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(KernelTextError):
        Schedule.from_json(text)
