"""Tuned: what the search has found for one kernel."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from halide_backend.tune.measurement.sequential_test import Interval
from halide_backend.tune.space import Settings
from halide_backend.tune.trial import Trial
from halide_backend.tune.tunable_kernel import TunableKernel


@dataclass(frozen=True)
class Tuned:
    """The result for one kernel.

    Attributes:
        settings: the best ones that were found; the rules' if nothing was better.
        confirmed: the rules' time over theirs, measured again in a fresh process; None if they did not win there, and
            the rules stay.
        seconds: one call of the rules' kernel. share: of the time that all kernels take with the rules.
        trials: all of them. same: settings with the text of a kernel that had been tried.
        complete: whether the strategy had nothing left to try.
    """

    kernel: TunableKernel
    settings: Settings
    confirmed: Interval | None
    seconds: float
    share: float
    trials: Sequence[Trial]
    same: int = 0
    complete: bool = False

    @property
    def gain(self) -> float:
        """The rules' time over the new one: 1 where the rules stay."""
        return self.confirmed.median if self.confirmed is not None else 1.0

    @property
    def outcomes(self) -> Counter[str]:
        """Number of trials by outcome."""
        return Counter(trial.outcome.value for trial in self.trials)


@dataclass(frozen=True)
class Effect:
    """One setting of a knob: the median gain of the trials that had it, and how many there were."""

    knob: str
    setting: str
    gain: float
    trials: int


def effects(trials: Sequence[Trial]) -> list[Effect]:
    """The effect of each setting of each knob that varied, whatever the others were set to."""
    gains: dict[str, dict[str, list[float]]] = {}
    for trial in trials:
        if trial.measured:
            for key, setting in trial.chosen:
                gains.setdefault(key, {}).setdefault(str(setting), []).append(trial.gain)
    return [
        Effect(key, setting, statistics.median(found), len(found))
        for key, settings in gains.items()
        if len(settings) > 1
        for setting, found in settings.items()
    ]


def best_so_far(trials: Sequence[Trial]) -> list[float]:
    """The incumbent's gain after each trial."""
    gains, best = [], 1.0
    for trial in trials:
        best = trial.gain if trial.won else best
        gains.append(best)
    return gains


def overall_gain(found: Sequence[Tuned]) -> float:
    """The time of all kernels with the rules over their time as tuned; 1 for none."""
    after = sum(tuned.share / tuned.gain for tuned in found)
    return sum(tuned.share for tuned in found) / after if after else 1.0


def geometric_mean(found: Sequence[Tuned]) -> float:
    """Of the gains; 1 for none."""
    return math.exp(statistics.fmean(math.log(tuned.gain) for tuned in found)) if found else 1.0
