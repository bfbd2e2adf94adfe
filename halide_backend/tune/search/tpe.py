"""Tree-structured Parzen estimators (Bergstra et al., NeurIPS 2011), by optuna: the extra `tune`."""

from __future__ import annotations

import random
from typing import Any

from halide_backend.errors import MissingExtra
from halide_backend.schedule.knobs import Setting
from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import first_new
from halide_backend.tune.space import Decision, Settings, random_settings
from halide_backend.tune.trial import Trial

#: Trials by chance before the first estimate, and estimates that may repeat a trial in a row.
_BY_CHANCE, _REPEATED = 6, 2


class TreeParzen:
    """See `Proposer`."""

    name = "tpe"

    def __init__(self, seed: int = 0) -> None:
        """Begin a study.

        Raises:
            MissingExtra: optuna is not installed.
        """
        try:
            import optuna
        except ImportError as error:
            raise MissingExtra(
                f"optuna cannot be imported: {error}", where="--strategy tpe", cure="pip install 'halide-backend[tune]'"
            ) from error
        self._source = random.Random(seed)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._failed = optuna.trial.TrialState.FAIL
        sampler = optuna.samplers.TPESampler(n_startup_trials=_BY_CHANCE, seed=seed)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        #: What optuna has asked for and not been told of.
        self._asked: dict[Settings, Any] = {}

    def propose(self, history: History) -> Settings | None:
        """What the estimate finds most promising; where that is known already, something by chance."""
        for _ in range(_REPEATED):
            asked = self._study.ask()
            settings = self._walk(history, asked)
            if history.is_new(settings):
                self._asked[settings] = asked
                return settings
            # It has to learn that it was here before, or it would ask again and again.
            self._tell(asked, history.trial(settings))
        drawn = first_new(history, lambda: random_settings(history.space, self._source))
        if drawn is not None:
            wanted = dict(drawn)
            parameters: dict[str, Any] = {}

            def follow(decision: Decision) -> Setting:
                setting = wanted.get(decision.key, decision.rule)
                parameters[_name(decision)] = setting
                return setting

            history.space.walk(follow)
            self._study.enqueue_trial(parameters)
            self._asked[drawn] = self._study.ask()
            self._walk(history, self._asked[drawn])
        return drawn

    def _walk(self, history: History, asked: Any) -> Settings:
        return history.space.walk(lambda decision: asked.suggest_categorical(_name(decision), decision.values))

    def told(self, trial: Trial) -> None:
        """Tell the study."""
        asked = self._asked.pop(trial.settings, None)
        if asked is not None:
            self._tell(asked, trial)

    def _tell(self, asked: Any, trial: Trial | None) -> None:
        if trial is not None and trial.measured:
            self._study.tell(asked, trial.gain)
        else:
            self._study.tell(asked, state=self._failed)


def _name(decision: Decision) -> str:
    """The values of one parameter must be the same in every trial."""
    return f"{decision.key} {decision.values}"
