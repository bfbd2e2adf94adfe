"""What the trials of all programs say of a setting: extremely randomised trees (Geurts et al., Machine Learning 63,
2006; scikit-learn, the extra `tune`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from halide_backend.errors import MissingExtra
from halide_backend.tune.search.features import Features, setting_features
from halide_backend.tune.search.warm_start import Known
from halide_backend.tune.space import Settings
from halide_backend.tune.trial import Trial

#: Trees, and trials of each program that they learn from: a fit to 2,000 rows takes some tenths of a second.
_TREES, _LEARNT = 60, 100

#: Least logarithm of a gain that is learnt, also that of a candidate that failed: how slow a slow one is says nothing.
_LEAST = -0.5

#: They learn anew when there are so many times as many trials.
_GROWN = 1.5


class Forest:
    """Trees that several searches share, and whose trials they learn from while these go on.

    Attributes:
        age: how often they have learnt.
    """

    def __init__(self, known: Sequence[Known] = (), seed: int = 0) -> None:
        """Prepare to learn from programs whose trials may become more."""
        self._known = known
        self._seed = seed
        self._trees: Any = None
        self._vectorizer: Any = None
        self._learnt = 0
        self.age = 0

    def predicted(self, features: Features, rules: Settings, chosen: Sequence[Settings]) -> list[float]:
        """Logarithms of gains, for a program of these `features`; 0, the rules', if there is nothing to learn from."""
        if self._trees is None or not chosen:
            return [0.0] * len(chosen)
        rows = [{**features, **setting_features(each, rules)} for each in chosen]
        found: list[float] = self._trees.predict(self._vectorizer.transform(rows)).tolist()
        return found

    def learn(self) -> None:
        """Learn, if there is enough that is new."""
        count = sum(min(len(known.trials), _LEARNT) for known in self._known)
        if count < max(1, _GROWN * self._learnt):
            return
        forest, vectorizer = packages()
        self._learnt = count
        self.age += 1
        known = [(each, each.rules) for each in self._known]
        learnt = [(each, rules, trial) for each, rules in known for trial in each.trials[-_LEARNT:] if trial.chosen]
        if learnt:
            self._vectorizer = vectorizer(sparse=False)
            self._trees = forest(n_estimators=_TREES, random_state=self._seed)
            rows = [{**each.features, **setting_features(trial.chosen, rules)} for each, rules, trial in learnt]
            self._trees.fit(self._vectorizer.fit_transform(rows), [learnt_of(trial) for *_, trial in learnt])


def learnt_of(trial: Trial) -> float:
    """The logarithm of a trial's gain, as far as it is learnt."""
    gain = math.log(trial.gain) if trial.measured and trial.gain > 0 else _LEAST
    return max(gain, _LEAST)


def packages() -> tuple[Any, Any]:
    """Scikit-learn's trees and what makes rows for them.

    Raises:
        MissingExtra: it is not installed.
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
    return ExtraTreesRegressor, DictVectorizer
