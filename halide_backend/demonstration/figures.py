"""What the demo measured: plain frozen data, also written as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Times:
    """Distribution of one step's wall time, in milliseconds."""

    median: float
    lower_quartile: float
    upper_quartile: float
    samples: int

    @staticmethod
    def of(milliseconds: Sequence[float]) -> Times:
        """Summarise at least two samples."""
        lower, median, upper = statistics.quantiles(milliseconds, n=4, method="inclusive")
        return Times(median, lower, upper, len(milliseconds))


@dataclass(frozen=True)
class Check:
    """One value compared with eager's."""

    name: str
    error: float
    """Largest absolute difference; nan where exactly one of the two is nan."""
    passed: bool


@dataclass(frozen=True)
class Start:
    """One fresh process: from the first step to the end of the second, compilation included."""

    seconds: float
    stats: dict[str, object]
    """`halide_backend.stats()` of that process; empty for another backend."""
    optimizer_seconds: float = 0.0
    """How many of the seconds were spent in the optimizer's step, which is a graph of its own."""


@dataclass(frozen=True)
class BackendFigures:
    """Everything measured of one backend on one workload; None where it was not measured."""

    cold: Start | None = None
    second: Start | None = None
    run: Times | None = None
    checks: tuple[Check, ...] = ()


@dataclass(frozen=True)
class RowFigures:
    """One row of the table."""

    name: str
    summary: str
    backends: dict[str, BackendFigures]
    failures: tuple[str, ...] = ()
    """One line per process that did not finish."""
    pictures: tuple[str, ...] = ()

    def passed(self, backend: str) -> bool:
        """True when every check of `backend` was made and passed, and no process failed."""
        checks = self.backends[backend].checks if backend in self.backends else ()
        return not self.failures and bool(checks) and all(check.passed for check in checks)


@dataclass(frozen=True)
class DemoFigures:
    """The whole demo."""

    machine: dict[str, str]
    rows: tuple[RowFigures, ...]
    seconds: float
    processes: dict[str, object] = field(default_factory=dict)
    """Counts of started processes, only with --audit."""
