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
        """Prepare for a program of these features; `others` may become more, and have more trials."""
        self.name = then.name
        self._then = then
        self._features = features
        self._others = others
        self._near: list[Known] = []
        self._asked: set[Settings] = set()

    def propose(self, history: History) -> Settings | None:
        """The next similar program's best settings as far as there are such knobs here; then the other strategy's."""
        for best in self._best(history):
            if best not in self._asked:
                self._asked.add(best)
                settings = repaired(history.space, best)
                if history.is_new(settings):
                    return settings
        return self._then.propose(history)

    def _best(self, history: History) -> list[Settings]:
        """Of the nearest programs that have any, as they are now; programs with equal ones count as one."""
        if len(self._near) < len(self._others):
            self._near = sorted(self._others, key=lambda other: distance(self._features, other.features))
        found: dict[Settings, None] = {}
        for other in self._near:
            # The program itself may be among them.
            if other.trials is not history.trials and (trial := other.best) is not None:
                found[trial.settings] = None
                if len(found) == _PROGRAMS:
                    break
        return list(found)

    def told(self, trial: Trial) -> None:
        """Let the other strategy learn."""
        self._then.told(trial)
