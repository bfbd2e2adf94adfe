"""A cost model: what other programs' trials say of a candidate, corrected by the trials of this kernel.

The trials of other programs train extremely randomised trees (Geurts et al., Machine Learning 63, 2006; scikit-learn,
the extra `tune`). What this kernel's trials gain beyond the trees' prediction is a Gaussian process over its settings:
so a few trials outweigh a prediction that is wrong for this kernel, and a region without any is uncertain. The
candidate with the greatest expected improvement (Jones et al., Journal of Global Optimization 13, 1998) is next.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

from halide_backend.errors import MissingExtra
from halide_backend.tune.search.features import Features, coordinates, setting_features
from halide_backend.tune.search.gaussian_process import GaussianProcess
from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import first_new
from halide_backend.tune.search.warm_start import Known
from halide_backend.tune.space import RULES, Settings, neighbours, random_settings
from halide_backend.tune.trial import Trial

#: Candidates that are ranked, drawn by chance, besides the neighbours of the best ones.
_DRAWN, _BEST = 64, 3

#: Trees, and trials of each other program that they learn from: a fit to 2,000 rows takes some tenths of a second.
_TREES, _LEARNT = 60, 100

#: Least logarithm of a gain that is learnt, also that of a candidate that failed: how slow a slow one is says nothing.
_LEAST = -0.5

#: What an improvement begins at, a logarithm: the gain over the incumbent that a contest can tell from none.
_IMPROVEMENT = 0.01

_NORMAL = NormalDist()


class CostModel:
    """See `Proposer`."""

    name = "model"

    def __init__(self, features: Features, others: Sequence[Known] = (), seed: int = 0) -> None:
        """Prepare for a program of these features, with the trials of others.

        Raises:
            MissingExtra: scikit-learn is not installed.
        """
        try:
            from sklearn.ensemble import ExtraTreesRegressor
            from sklearn.feature_extraction import DictVectorizer
        except ImportError as error:
            raise MissingExtra(
                f"scikit-learn cannot be imported: {error}",
                where="--strategy model",
                cure="pip install 'halide-backend[tune]'",
            ) from error
        self._source = random.Random(seed)
        self._features = features
        self._vectorizer = DictVectorizer(sparse=False)
        self._trees: Any = ExtraTreesRegressor(n_estimators=_TREES, random_state=seed)
        self._others = others
        self._trained: bool | None = None
        self._rules: Settings = ()
        self._prediction: dict[Settings, float] = {}
        self._beyond = GaussianProcess()
        self._best = 0.0

    def propose(self, history: History) -> Settings | None:
        """The greatest expected improvement among random settings and neighbours of the best."""
        space, source = history.space, self._source
        best = sorted(history.measured, key=lambda trial: -trial.gain)[:_BEST]
        near = [
            settings for centre in {history.best, *(t.settings for t in best)} for settings in neighbours(space, centre)
        ]
        drawn = [random_settings(space, source) for _ in range(_DRAWN)]
        candidates = sorted({settings for settings in (*near, *drawn) if history.is_new(settings)}, key=str)
        if not candidates:
            return first_new(history, lambda: random_settings(space, source))
        # Candidates of which nothing is known are equal, and the first ones of the alphabet have nothing in common.
        source.shuffle(candidates)
        ranked = self._improvements([space.chosen(settings) for settings in candidates])
        return max(zip(ranked, candidates), key=lambda pair: pair[0])[1]

    def told(self, trial: Trial) -> None:
        """Learn from a trial of this kernel."""
        if trial.settings == RULES:
            self._rules = trial.chosen
        if trial.chosen:
            gain = _learnt(trial)
            self._beyond.observe(coordinates(trial.chosen), gain - self._predicted([trial.chosen])[0])
            self._best = max(self._best, gain)

    def _improvements(self, chosen: Sequence[Settings]) -> list[float]:
        """Of the logarithm of the gain beyond the best trial's, what can be expected of each."""
        means, deviations = self._beyond.at([coordinates(each) for each in chosen])
        least = self._best + _IMPROVEMENT
        return [
            _expected(predicted + mean - least, deviation)
            for predicted, mean, deviation in zip(self._predicted(chosen), means, deviations)
        ]

    def _predicted(self, chosen: Sequence[Settings]) -> list[float]:
        """Logarithms of gains as other programs suggest them; 0, the rules', if there are none."""
        if self._trained is None:
            self._trained = self._train()
        if not self._trained:
            return [0.0] * len(chosen)
        # Most candidates are asked about again before every trial, and trees take milliseconds to answer.
        new = [each for each in chosen if each not in self._prediction]
        if new:
            rows = [{**self._features, **setting_features(each, self._rules)} for each in new]
            predicted = self._trees.predict(self._vectorizer.transform(rows))
            self._prediction.update((each, float(value)) for each, value in zip(new, predicted))
        return [self._prediction[each] for each in chosen]

    def _train(self) -> bool:
        """Whether there was anything to learn."""
        learnt = [(other, trial) for other in self._others for trial in other.trials[-_LEARNT:] if trial.chosen]
        if learnt:
            rules = {id(other): other.rules for other in self._others}
            rows = [{**other.features, **setting_features(trial.chosen, rules[id(other)])} for other, trial in learnt]
            self._trees.fit(self._vectorizer.fit_transform(rows), [_learnt(trial) for _, trial in learnt])
        return bool(learnt)


def _learnt(trial: Trial) -> float:
    gain = math.log(trial.gain) if trial.measured and trial.gain > 0 else _LEAST
    return max(gain, _LEAST)


def _expected(mean: float, deviation: float) -> float:
    """Mean of the positive part of a normal distribution."""
    if deviation <= 0:
        return max(mean, 0.0)
    return mean * _NORMAL.cdf(mean / deviation) + deviation * _NORMAL.pdf(mean / deviation)
