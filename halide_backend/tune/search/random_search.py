"""Random search: every knob by chance, each trial apart from all others."""

from __future__ import annotations

import random

from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import first_new
from halide_backend.tune.space import Settings, random_settings
from halide_backend.tune.trial import Trial


class RandomSearch:
    """See `Proposer`."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._source = random.Random(seed)

    def propose(self, history: History) -> Settings | None:
        """Settings drawn by chance."""
        return first_new(history, lambda: random_settings(history.space, self._source))

    def told(self, trial: Trial) -> None:
        """It learns nothing."""
