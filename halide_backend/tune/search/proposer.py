"""Proposer: what every strategy is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from halide_backend.tune.search.history import History
from halide_backend.tune.space import Settings, neighbours
from halide_backend.tune.trial import Trial

#: Attempts at settings that nobody has proposed before; then a space is looked through from end to end.
ATTEMPTS = 64


class Proposer(Protocol):
    """A strategy for one kernel. Given the same history and seed it proposes the same settings."""

    #: By which trials and the command line name it.
    name: str

    def propose(self, history: History) -> Settings | None:
        """Settings that nobody has proposed before; None if it finds none. Earlier ones may still be measured."""

    def told(self, trial: Trial) -> None:
        """Learn from a trial, whoever proposed it."""


def first_new(history: History, draw: Callable[[], Settings]) -> Settings | None:
    """The first of some draws that is new; if there is none the first neighbour of a trial that is."""
    for drawn in (draw() for _ in range(ATTEMPTS)):
        if history.is_new(drawn):
            return drawn
    near = (settings for trial in history.measured for settings in neighbours(history.space, trial.settings))
    return next((settings for settings in near if history.is_new(settings)), None)
