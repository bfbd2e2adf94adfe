"""Trial: what came of one setting of one kernel, as it is kept for ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from halide_backend.errors import TrialLogError
from halide_backend.tune.space import Settings


class Outcome(str, Enum):
    """How a trial ended; only what is `MEASURED` can be chosen."""

    MEASURED = "measured"
    WRONG = "wrong"
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    ILLEGAL = "illegal"


@dataclass(frozen=True)
class Trial:
    """One setting of one kernel, measured in turns with the incumbent, the best one so far.

    Attributes:
        program: digest of the program. device: name of the device class.
        settings: what departs from the rules. chosen: the settings of all knobs, the rules' ones too, in their order.
        outcome: how it ended. reason: what was wrong, "" if it was measured.
        proposer: the strategy that proposed it.
        samples, incumbent: seconds of one call, of this kernel and of the incumbent, taken in turns.
        against: settings of the incumbent.
        gain: the rules' time over this kernel's, 0 unless it was measured: the median of the ratios of samples, times
            the incumbent's own gain. low, high: the bounds between which the median ratio to the incumbent lies, 0
            where there are too few samples for one.
        won: whether it has become the incumbent.
        compile_seconds: time that the compile worker took.
        cold: whether operands were out of the caches when calls began. threads: threads of the kernel.
        when: UTC, ISO 8601.
    """

    program: str
    device: str
    settings: Settings
    outcome: Outcome
    reason: str = ""
    proposer: str = ""
    chosen: Settings = ()
    samples: tuple[float, ...] = ()
    incumbent: tuple[float, ...] = ()
    against: Settings = ()
    gain: float = 0.0
    low: float = 0.0
    high: float = 0.0
    won: bool = False
    compile_seconds: float = 0.0
    cold: bool = False
    threads: int = 1
    when: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether there is a time."""
        return self.outcome is Outcome.MEASURED

    def to_json(self) -> dict[str, Any]:
        """Plain JSON; settings as objects, in order."""
        document = asdict(self)
        pairs = {name: dict(getattr(self, name)) for name in ("settings", "chosen", "against")}
        return {**document, **pairs, "outcome": self.outcome.value, "versions": dict(self.versions)}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Trial:
        """The trial that `to_json` wrote.

        Raises:
            TrialLogError: it is none.
        """
        try:
            found = dict(document)
            for name in ("settings", "chosen", "against"):
                found[name] = tuple((str(key), setting) for key, setting in found[name].items())
            for name in ("samples", "incumbent"):
                found[name] = tuple(map(float, found[name]))
            return Trial(**{**found, "outcome": Outcome(found["outcome"])})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise TrialLogError(f"not a trial: {error!r}", cure="delete the line") from error
