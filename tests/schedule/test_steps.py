"""Schedules are data: each step survives JSON and its own text, and anything else is a typed error."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest

from halide_backend.errors import IllegalPlan
from halide_backend.schedule import steps
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.plan import SCHEMA, Plan
from halide_backend.schedule.steps import Step

_EXAMPLES = {
    "str": "x0",
    "int": 16,
    "int | None": 1,
    "tuple[str, ...]": ("x0", "r_0$x"),
    "str | tuple[str, ...]": ("r_0$x", "r_0$y"),
}


def example(kind: type[Step]) -> Step:
    return kind(*(_EXAMPLES[str(field.type)] for field in fields(kind)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", Step.kinds.values(), ids=lambda kind: kind.__name__)
def test_every_step_survives_json_and_text(kind: type[Step]) -> None:
    step = example(kind)
    document = json.loads(json.dumps(Plan(Mapping(), (step,)).to_json()))
    assert Plan.from_json(document).steps == (step,)
    assert eval(repr(step), vars(steps)) == step


def test_equal_steps_are_of_one_kind() -> None:
    root, inline, again = steps.ComputeRoot("f"), steps.ComputeInline("f"), steps.ComputeRoot("f")
    assert vars(root) == vars(inline) and root != inline and root == again
    assert len({root, inline, again}) == 2
    assert steps.Unroll("f", "x") != steps.Unroll("f", "y")


def test_there_are_steps() -> None:
    assert {"Split", "Vectorize", "Parallel", "RFactor", "ComputeAt", "ComputeWith"} <= Step.kinds.keys()


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ({}, "plan"),
        ({"schema": 99, "steps": [], "mapping": {"funcs": {}}}, "schema"),
        ({"schema": SCHEMA, "steps": [{"step": "Explode"}], "mapping": {"funcs": {}}}, "step 0"),
        ({"schema": SCHEMA, "steps": [{"step": "Split"}], "mapping": {"funcs": {}}}, "step 0"),
        ({"schema": SCHEMA, "steps": []}, "plan"),
        ({"schema": SCHEMA, "steps": [], "mapping": {"funcs": {"0": "clever"}}}, "mapping"),
        ({"schema": SCHEMA, "steps": [], "mapping": {"funcs": {}, "tiling": {"kind": "a crowd"}}}, "mapping"),
    ],
)
def test_anything_else_is_refused(document: dict[str, Any], where: str) -> None:
    with pytest.raises(IllegalPlan) as caught:
        Plan.from_json(document)
    assert caught.value.where == where
    assert caught.value.cure
