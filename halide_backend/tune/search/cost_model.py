"""A cost model: what other programs' trials say of a candidate, corrected by the trials of this kernel.

The trials of other programs train a forest. What this kernel's trials gain beyond the forest's prediction is a Gaussian
process over its settings: so a few trials outweigh a prediction that is wrong for this kernel, and a region without any
is uncertain. The candidate with the greatest expected improvement (Jones et al., Journal of Global Optimization 13,
1998) is next.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import NormalDist

from halide_backend.tune.search.features import Features, coordinates
from halide_backend.tune.search.forest import Forest, learnt_of, packages
from halide_backend.tune.search.gaussian_process import GaussianProcess
from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import first_new
from halide_backend.tune.space import RULES, Settings, neighbours, random_settings
from halide_backend.tune.trial import Trial

#: Candidates that are ranked besides the neighbours of the best ones: so many are drawn by chance for the first
#: proposal, some more for each other one, since to plan them takes longer than to rank them, and all stay.
_DRAWN, _MORE, _BEST = 64, 8, 3

#: What an improvement begins at, a logarithm: the gain over the incumbent that a contest can tell from none.
_IMPROVEMENT = 0.01

_NORMAL = NormalDist()


class CostModel:
    """See `Proposer`."""

    name = "model"

    def __init__(self, features: Features, forest: Forest, seed: int = 0) -> None:
        """Prepare for a program of these features, with the forest of others.

        Raises:
            MissingExtra: scikit-learn is not installed.
        """
        packages()
        self._source = random.Random(seed)
        self._features = features
        self._forest = forest
        self._age = -1
        self._rules: Settings = ()
        self._trials: list[Trial] = []
        #: What all knobs are set to in proposals that have not ended, by their settings.
        self._waiting: dict[Settings, Settings] = {}
        self._prediction: dict[Settings, float] = {}
        self._drawn: dict[Settings, None] = {}
        self._beyond = GaussianProcess()
        self._best = 0.0

    def propose(self, history: History) -> Settings | None:
        """The greatest expected improvement among random settings and neighbours of the best."""
        space, source = history.space, self._source
        self._learn()
        best = sorted(history.measured, key=lambda trial: -trial.gain)[:_BEST]
        near = [
            settings for centre in {history.best, *(t.settings for t in best)} for settings in neighbours(space, centre)
        ]
        more = _MORE if self._drawn else _DRAWN
        self._drawn.update(dict.fromkeys(random_settings(space, source) for _ in range(more)))
        candidates = sorted({settings for settings in (*near, *self._drawn) if history.is_new(settings)}, key=str)
        if not candidates:
            return first_new(history, lambda: random_settings(space, source))
        # Candidates of which nothing is known are equal, and the first ones of the alphabet have nothing in common.
        source.shuffle(candidates)
        ranked = self._improvements([space.chosen(settings) for settings in candidates])
        proposed = max(zip(ranked, candidates), key=lambda pair: pair[0])[1]
        self._waiting[proposed] = space.chosen(proposed)
        return proposed

    def told(self, trial: Trial) -> None:
        """Learn from a trial of this kernel."""
        self._waiting.pop(trial.settings, None)
        if trial.settings == RULES:
            self._rules = trial.chosen
        if trial.chosen:
            self._trials.append(trial)
            self._best = max(self._best, learnt_of(trial))
            if self._age == self._forest.age:
                self._observe([trial])

    def _learn(self) -> None:
        """Let the forest learn what is new, and hold all trials against what it then says."""
        self._forest.learn()
        if self._age != self._forest.age:
            self._age = self._forest.age
            self._prediction = {}
            self._beyond = GaussianProcess()
            self._observe(self._trials)

    def _observe(self, trials: Sequence[Trial]) -> None:
        predicted = self._predicted([trial.chosen for trial in trials])
        for trial, expected in zip(trials, predicted):
            self._beyond.observe(coordinates(trial.chosen), learnt_of(trial) - expected)

    def _improvements(self, chosen: Sequence[Settings]) -> list[float]:
        """Of the logarithm of the gain beyond the best trial's, what can be expected of each."""
        waiting = [coordinates(each) for each in self._waiting.values()]
        means, deviations = self._beyond.at([coordinates(each) for each in chosen], waiting)
        least = self._best + _IMPROVEMENT
        return [
            _expected(predicted + mean - least, deviation)
            for predicted, mean, deviation in zip(self._predicted(chosen), means, deviations)
        ]

    def _predicted(self, chosen: Sequence[Settings]) -> list[float]:
        """Logarithms of gains as other programs suggest them; 0, the rules', if there are none."""
        # Most candidates are asked about again before every trial, and trees take milliseconds to answer.
        new = list(dict.fromkeys(each for each in chosen if each not in self._prediction))
        self._prediction.update(zip(new, self._forest.predicted(self._features, self._rules, new)))
        return [self._prediction[each] for each in chosen]


def _expected(mean: float, deviation: float) -> float:
    """Mean of the positive part of a normal distribution."""
    if deviation <= 0:
        return max(mean, 0.0)
    return mean * _NORMAL.cdf(mean / deviation) + deviation * _NORMAL.pdf(mean / deviation)
