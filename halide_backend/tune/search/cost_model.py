"""A cost model: trees that learn gains from trials, also of other programs, and rank candidates before they compile.

Extremely randomised trees (Geurts et al., Machine Learning 63, 2006) by scikit-learn, the extra `tune`: their averages
are less sure of a single trial than gradient boosting is, and most trials are those of other programs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from halide_backend.errors import MissingExtra
from halide_backend.tune.search.features import Features, setting_features
from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import first_new
from halide_backend.tune.search.warm_start import Known
from halide_backend.tune.space import RULES, Settings, neighbours, random_settings
from halide_backend.tune.trial import Trial

#: Trials of this kernel by chance before the first ranking, unless there are trials of others.
_BY_CHANCE = 6

#: Candidates that are ranked, drawn by chance, besides the neighbours of the best ones.
_DRAWN, _BEST = 64, 3

#: Trials after which the model is fitted again, and how many trials of other programs one of this kernel counts for.
_REFITTED, _OWN_WEIGHT = 2, 3.0

#: Trials of each other program that are learnt from: a fit to 2,000 rows takes some tenths of a second.
_LEARNT = 100

#: Least logarithm of a gain that is learnt, also that of a candidate that failed: how slow a slow one is says nothing.
_LEAST = -0.5


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
        self._model: Any = ExtraTreesRegressor(n_estimators=60, min_samples_leaf=2, random_state=seed)
        self._rows: list[Features] = []
        self._gains: list[float] = []
        self._weights: list[float] = []
        self._rules: Settings = ()
        for other in others:
            rules = other.rules
            for trial in other.trials[-_LEARNT:]:
                self._learn(other.features, rules, trial, 1.0)
        self._by_chance = 0 if self._rows else _BY_CHANCE
        self._own = self._fitted_to = 0

    def propose(self, history: History) -> Settings | None:
        """What the model ranks highest among random settings and neighbours of the best."""
        space, source = history.space, self._source
        if self._own < self._by_chance:
            return first_new(history, lambda: random_settings(space, source))
        best = sorted(history.measured, key=lambda trial: -trial.gain)[:_BEST]
        near = [
            settings for centre in {history.best, *(t.settings for t in best)} for settings in neighbours(space, centre)
        ]
        drawn = [random_settings(space, source) for _ in range(_DRAWN)]
        candidates = sorted({settings for settings in (*near, *drawn) if history.is_new(settings)}, key=str)
        if not candidates or not self._rows:
            return first_new(history, lambda: random_settings(space, source))
        ranked = self._predicted([space.chosen(settings) for settings in candidates])
        return max(zip(ranked, candidates), key=lambda pair: (pair[0], str(pair[1])))[1]

    def told(self, trial: Trial) -> None:
        """Learn from a trial of this kernel."""
        if trial.settings == RULES:
            self._rules = trial.chosen
        self._learn(self._features, self._rules, trial, _OWN_WEIGHT)
        self._own += 1

    def _learn(self, features: Features, rules: Settings, trial: Trial, weight: float) -> None:
        if trial.chosen:
            self._rows.append({**features, **setting_features(trial.chosen, rules)})
            gain = math.log(trial.gain) if trial.measured and trial.gain > 0 else _LEAST
            self._gains.append(max(gain, _LEAST))
            self._weights.append(weight)

    def _predicted(self, chosen: Sequence[Settings]) -> list[float]:
        if not self._fitted_to or len(self._rows) >= self._fitted_to + _REFITTED:
            self._model.fit(self._vectorizer.fit_transform(self._rows), self._gains, sample_weight=self._weights)
            self._fitted_to = len(self._rows)
        rows = [{**self._features, **setting_features(each, self._rules)} for each in chosen]
        return [float(value) for value in self._model.predict(self._vectorizer.transform(rows))]
