"""Schedule: a tuple of steps, with a JSON form that tuning and users can store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from halide_backend.errors import KernelTextError
from halide_backend.schedule.steps import Step

#: Version of the JSON form.
SCHEMA = 1


@dataclass(frozen=True)
class Schedule:
    """What becomes of a kernel's loops: the steps are applied in order."""

    steps: tuple[Step, ...]

    def to_json(self) -> str:
        """The schedule as one JSON object."""
        return json.dumps({"schema": SCHEMA, "steps": [step.to_json() for step in self.steps]})

    @staticmethod
    def from_json(text: str) -> Schedule:
        """The inverse of `to_json`.

        Raises:
            KernelTextError: not JSON, another schema, or a step that does not exist.
        """
        try:
            document = json.loads(text)
            if document["schema"] != SCHEMA:
                raise KernelTextError(
                    f"schedule schema {document['schema']} is not {SCHEMA}",
                    cure="tune again with this version",
                )
            return Schedule(tuple(_step(step) for step in document["steps"]))
        except (ValueError, KeyError, TypeError) as error:
            raise KernelTextError(f"not a schedule: {error!r}", cure="tune again") from error

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)


def _step(document: dict[str, Any]) -> Step:
    arguments = {
        name: tuple(value) if isinstance(value, list) else value for name, value in document.items() if name != "step"
    }
    kind: Any = Step.kinds[document["step"]]
    return cast(Step, kind(**arguments))
