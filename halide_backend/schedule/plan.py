"""Plan: how one kernel runs, as data: a mapping and steps, with the choices of the rules behind them."""

from __future__ import annotations

from collections.abc import Mapping as AbstractMapping
from dataclasses import dataclass
from typing import Any, cast

from halide_backend.errors import IllegalPlan
from halide_backend.schedule.knobs import Choice, Setting
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.steps import Split, Step

#: Version of the JSON form.
SCHEMA = 4


@dataclass(frozen=True)
class Plan:
    """The `mapping` that the text of a kernel is written for, and the `steps` that are applied to its Funcs in order.

    `choices` say which knobs the rules had and why they set them so; a plan that a person wrote needs none. `knobs` are
    the settings by themselves: those of the mapping tell it from the one that the rules choose.
    """

    mapping: Mapping
    steps: tuple[Step, ...]
    choices: tuple[Choice, ...] = ()
    knobs: tuple[tuple[str, Setting], ...] = ()

    @property
    def computes_twice(self) -> bool:
        """Whether some elements of an output are computed twice."""
        return any(isinstance(step, Split) and step.tail == "ShiftInwards" for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; `knobs` are also what `plan_kernel` takes as requests."""
        return {
            "schema": SCHEMA,
            "mapping": self.mapping.to_json(),
            "steps": [step.to_json() for step in self.steps],
            "knobs": dict(self.knobs),
        }

    @staticmethod
    def from_json(document: AbstractMapping[str, Any]) -> Plan:
        """The plan that `to_json` wrote, without its choices: their reasons are the rules'.

        Raises:
            IllegalPlan: another schema, or a step that does not exist.
        """
        try:
            if document["schema"] != SCHEMA:
                raise IllegalPlan(
                    f"schema {document['schema']} of a plan is not {SCHEMA}",
                    where="schema",
                    cure="dump the plan again with this version",
                )
            steps = tuple(_step(number, step) for number, step in enumerate(document["steps"]))
            knobs = tuple((str(key), setting) for key, setting in document.get("knobs", {}).items())
            return Plan(Mapping.from_json(document["mapping"]), steps, knobs=knobs)
        except (KeyError, TypeError, AttributeError) as error:
            raise IllegalPlan(f"not a plan: {error!r}", where="plan", cure="dump the plan again") from error


def _step(number: int, document: AbstractMapping[str, Any]) -> Step:
    arguments = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items() if name != "step"
    }
    kind: Any = Step.kinds.get(document["step"])
    if kind is None:
        raise IllegalPlan(
            f"there is no step {document['step']!r}",
            where=f"step {number}",
            cure=f"use one of {', '.join(sorted(Step.kinds))}",
        )
    try:
        return cast(Step, kind(**arguments))
    except TypeError as error:
        raise IllegalPlan(
            str(error), where=f"step {number}", cure="give it the arguments of Halide's directive"
        ) from error
