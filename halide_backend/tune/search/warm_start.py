"""Warm start: what was best for similar programs first, then whatever another strategy proposes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halide_backend.tune.search.features import Features, distance
from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import Proposer
from halide_backend.tune.space import RULES, Settings, is_whole, repaired
from halide_backend.tune.trial import Trial

#: Similar programs that are asked, and the gain from which their settings count.
_PROGRAMS, _GAIN = 4, 1.02


@dataclass(frozen=True)
class Known:
    """What is known of another program on the same class of devices: its features and its trials."""

    features: Features
    trials: Sequence[Trial]

    @property
    def rules(self) -> Settings:
        """What the rules set all knobs to; none where their trial is not known."""
        return next((trial.chosen for trial in self.trials if trial.settings == RULES), ())

    @property
    def best(self) -> Trial | None:
        """The last trial that won: the incumbent of that search."""
        won = [trial for trial in self.trials if trial.won and trial.gain >= _GAIN and not is_whole(trial.settings)]
        return won[-1] if won else None


class WarmStart:
    """See `Proposer`; its name is that of the strategy that goes on."""

    def __init__(self, features: Features, others: Sequence[Known], then: Proposer) -> None:
        """Prepare for a program of these features."""
        self.name = then.name
        self._then = then
        near = sorted(others, key=lambda other: distance(features, other.features))
        best = [trial.settings for other in near if (trial := other.best) is not None]
        self._begin: list[Settings] = list(dict.fromkeys(best))[:_PROGRAMS]

    def propose(self, history: History) -> Settings | None:
        """The next similar program's best settings as far as there are such knobs here; then the other strategy's."""
        while self._begin:
            settings = repaired(history.space, self._begin.pop(0))
            if history.is_new(settings):
                return settings
        return self._then.propose(history)

    def told(self, trial: Trial) -> None:
        """Let the other strategy learn."""
        self._then.told(trial)
