"""Tree-structured Parzen estimators (Bergstra et al., NeurIPS 2011), by optuna: the extra `tune`."""

from __future__ import annotations

from typing import Any

from halide_backend.errors import MissingExtra
from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import ATTEMPTS
from halide_backend.tune.space import Decision, Settings
from halide_backend.tune.trial import Trial

#: Trials by chance before the first estimate.
_BY_CHANCE = 6


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
                "optuna is not installed", where="--strategy tpe", cure="pip install 'halide-backend[tune]'"
            ) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._failed = optuna.trial.TrialState.FAIL
        sampler = optuna.samplers.TPESampler(n_startup_trials=_BY_CHANCE, seed=seed)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        #: What optuna has asked for and not been told of.
        self._asked: dict[Settings, Any] = {}

    def propose(self, history: History) -> Settings | None:
        """What the estimate finds most promising."""
        for _ in range(ATTEMPTS):
            asked = self._study.ask()

            def decide(decision: Decision, asked: Any = asked) -> Any:
                # The values of one parameter must be the same in every trial.
                return asked.suggest_categorical(f"{decision.key} {decision.values}", decision.values)

            settings = history.space.walk(decide)
            known = history.trial(settings)
            if history.is_new(settings):
                self._asked[settings] = asked
                return settings
            # It has to learn that it was here before, or it would ask again and again.
            self._tell(asked, known)
        return None

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
