"""The space of the trials that a log holds: strategies walk through it as through the real one, and measure nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from halide_backend.schedule.knobs import Setting
from halide_backend.tune.space import RULES, Decision, Settings, same
from halide_backend.tune.trial import Trial


@dataclass
class _Node:
    """What is left to decide after some settings: the next knob, and where each of its recorded values leads."""

    key: str = ""
    rule: Setting = False
    after: dict[tuple[type, Setting], _Node] = field(default_factory=dict)
    settings: Settings | None = None

    @property
    def decision(self) -> Decision:
        return Decision(self.key, tuple(setting for _, setting in self.after), self.rule)


class RecordedSpace:
    """See `space.SearchSpace`. A walk ends at a recorded trial whatever is decided on the way."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        """The space of trials of one program; those without a kernel are left out."""
        self.trials = {trial.settings: trial for trial in trials if trial.chosen}
        self._root = _Node()
        # The rules' own first, so that their values are known as such.
        for trial in sorted(self.trials.values(), key=lambda each: each.settings != RULES):
            self._add(trial)

    def walk(self, decide: Callable[[Decision], Setting]) -> Settings:
        """See `SearchSpace`."""
        node = self._root
        while node.after:
            wanted = decide(node.decision)
            node = (
                node.after.get((type(wanted), wanted))
                or node.after.get((type(node.rule), node.rule))
                or next(iter(node.after.values()))
            )
        return node.settings or RULES

    def decisions(self, settings: Settings) -> tuple[Decision, ...]:
        """See `SearchSpace`."""
        return tuple(node.decision for node in self._way(settings))

    def chosen(self, settings: Settings) -> Settings:
        """See `SearchSpace`."""
        trial = self.trials.get(settings)
        return trial.chosen if trial is not None else ()

    def _add(self, trial: Trial) -> None:
        node, departing = self._root, dict(trial.settings)
        for key, setting in trial.chosen:
            if not node.key:
                node.key, node.rule = key, setting
            if key not in departing and not same(node.rule, setting):
                node.rule = setting
            node = node.after.setdefault((type(setting), setting), _Node())
        node.settings = trial.settings

    def _way(self, settings: Settings) -> list[_Node]:
        node, found = self._root, list[_Node]()
        for _, setting in self.chosen(settings):
            found.append(node)
            node = node.after[(type(setting), setting)]
        return found
