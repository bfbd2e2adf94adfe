"""What became of one operator with one data type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

PASSED = "passed"
FAILED = "failed"
SAME_FAILURE = "same failure"
CRASHED = "crashed"
TIMEOUT = "timeout"
NOT_RUN = "not run"

#: Every status, in the order of the tables.
STATUSES = (PASSED, FAILED, SAME_FAILURE, CRASHED, TIMEOUT, NOT_RUN)

#: What is to be looked at.
BAD = (FAILED, CRASHED, TIMEOUT)


@dataclass(frozen=True)
class Failure:
    """The first thing that went wrong with one sample input.

    `kind` is "raised" (compiling or running), "values", "gradients raised", "gradients", "crashed"
    or "timeout"; `sample` is the sample's number, -1 where the database itself failed.
    """

    sample: int
    kind: str
    error: str


@dataclass(frozen=True)
class Outcome:
    """One operator with one data type.

    Attributes:
        samples: sample inputs that were compared; gradients: those of them with gradients.
        not_comparable: samples that were not compared because eager itself raises.
        failures: one for each sample that failed. other_failures: those of the backend that was compared on
            the same samples, where it was asked.
        native, delegated: loop kernels that this backend computed, and that it left to Inductor's
            own backend; reasons: number of delegated kernels by code (docs/reference/refusals.md).
        seconds: time it took, all samples together.
    """

    op: str
    dtype: str
    status: str
    samples: int = 0
    gradients: int = 0
    not_comparable: int = 0
    failures: tuple[Failure, ...] = ()
    other_failures: tuple[Failure, ...] | None = None
    native: int = 0
    delegated: int = 0
    reasons: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Outcome:
        """The outcome that `to_json` wrote."""
        other = data["other_failures"]
        return Outcome(
            **{
                **data,
                "failures": _failures(data["failures"]),
                "other_failures": None if other is None else _failures(other),
            }
        )


def same_failures(ours: tuple[Failure, ...], others: tuple[Failure, ...]) -> bool:
    """Whether `others` fail on every sample on which `ours` do, and in the same way."""
    kinds = {failure.sample: failure.kind for failure in others}
    return all(kinds.get(failure.sample) == failure.kind for failure in ours)


def _failures(data: list[dict[str, Any]]) -> tuple[Failure, ...]:
    return tuple(Failure(**failure) for failure in data)
