"""History: the trials of one kernel so far, and what has been proposed."""

from __future__ import annotations

from halide_backend.tune.space import RULES, SearchSpace, Settings
from halide_backend.tune.trial import Trial


class History:
    """Trials of one kernel.

    Attributes:
        space: what is searched. trials: in the order in which they ended.
        best: settings of the incumbent. gain: the rules' time over its time.
        fruitless: trials since it became the incumbent.
    """

    def __init__(self, space: SearchSpace) -> None:
        self.space = space
        self.trials: list[Trial] = []
        self.best: Settings = RULES
        self.gain = 1.0
        self.fruitless = 0
        self._known: set[Settings] = {RULES}
        self._ended: dict[Settings, Trial] = {}

    def is_new(self, settings: Settings) -> bool:
        """Whether nobody has proposed these settings."""
        return settings not in self._known

    def note(self, settings: Settings) -> None:
        """Note that they were proposed."""
        self._known.add(settings)

    def add(self, trial: Trial) -> None:
        """Note a trial that has ended; if it won it is the incumbent."""
        self._known.add(trial.settings)
        self._ended[trial.settings] = trial
        self.trials.append(trial)
        self.fruitless = 0 if trial.won else self.fruitless + 1
        if trial.won:
            self.best, self.gain = trial.settings, trial.gain

    def trial(self, settings: Settings) -> Trial | None:
        """The last trial of these settings."""
        return self._ended.get(settings)

    @property
    def measured(self) -> list[Trial]:
        """The trials that have a time."""
        return [trial for trial in self.trials if trial.measured]
