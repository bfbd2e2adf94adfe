"""Hill climbing: neighbours of the best settings, from the rules' ones on; where none is better, from elsewhere."""

from __future__ import annotations

import random

from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import first_new
from halide_backend.tune.space import RULES, Settings, is_whole, neighbours, random_settings
from halide_backend.tune.trial import Trial


class HillClimb:
    """See `Proposer`."""

    name = "hill-climb"

    def __init__(self, seed: int = 0) -> None:
        self._source = random.Random(seed)
        #: Where the climb stands, and its gain there.
        self._centre: Settings = RULES
        self._height = 1.0

    def propose(self, history: History) -> Settings | None:
        """A neighbour of where the climb stands; if all were tried the beginning of another climb."""
        new = [near for near in neighbours(history.space, self._centre) if history.is_new(near)]
        if new:
            return self._source.choice(new)
        begin = first_new(history, lambda: random_settings(history.space, self._source))
        if begin is not None:
            self._centre, self._height = begin, 0.0
        return begin

    def told(self, trial: Trial) -> None:
        """Step to it if it is higher and has neighbours, which whole schedules have not."""
        if is_whole(trial.settings) or not trial.measured:
            return
        if trial.gain > self._height or trial.settings == self._centre:
            self._centre, self._height = trial.settings, trial.gain
