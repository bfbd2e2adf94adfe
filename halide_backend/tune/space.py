"""The search space of one program on one device: settings of the knobs that its rules ask for.

Nothing declares it. A program is planned, and the knobs that the rules asked for on the way can be set otherwise; that
may open knobs of other rules and close some, which the next planning shows. Beside it stand whole schedules, whose one
setting is the text of all their steps: nothing leads to them but an autoscheduler of Halide's.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.errors import HalideBackendError, IllegalPlan, Unsupported
from halide_backend.program.loop_program import LoopProgram
from halide_backend.program.serialization import digest
from halide_backend.schedule.device import Device
from halide_backend.schedule.knobs import Choice, Setting
from halide_backend.schedule.steps import Step
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.planning import plan_entry
from halide_backend.schedules.step_text import parse_step

#: Pairs of a knob's key and what it is set to, for those that depart from the rules, sorted by key.
Settings: TypeAlias = tuple[tuple[str, Setting], ...]

#: The settings of the rules.
RULES: Settings = ()

#: Knobs that say how threads share a loop.
_SHARES = ("parallel.task_work",)

#: The key of a whole schedule, before its origin: "steps@Adams2019".
_STEPS = "steps@"


@dataclass(frozen=True)
class Decision:
    """One knob that can be set: its `key`, the `values` it may have, and the `rule`'s, which is one of them."""

    key: str
    values: tuple[Setting, ...]
    rule: Setting

    @staticmethod
    def of(choice: Choice) -> Decision:
        """What a rule asked for; its own setting stands last if the knob's values do not have it."""
        values = choice.knob.values
        known = any(same(choice.rule, value) for value in values)
        return Decision(choice.key, values if known else (*values, choice.rule), choice.rule)


class SearchSpace(Protocol):
    """What a search walks through: one decision after another, each of which may open others."""

    def walk(self, decide: Callable[[Decision], Setting]) -> Settings:
        """The settings that `decide` makes when it is asked for every knob that is open, one by one."""

    def decisions(self, settings: Settings) -> tuple[Decision, ...]:
        """The knobs that are open where these settings are requested, in their order."""

    def chosen(self, settings: Settings) -> Settings:
        """What all knobs are set to where these settings are requested, the rules' ones too, in their order."""


class Space:
    """The space of `program` on `device`.

    Attributes:
        refused: settings that no kernel can have, with the reason; it grows as the space is explored.
    """

    def __init__(self, program: LoopProgram, device: Device, *, threads: int = 0) -> None:
        """Plan the program as the rules do, for kernels with so many threads, 0 for any number.

        Raises:
            Unsupported: there is no kernel of it.
        """
        self.program = program
        self.device = device
        self.refused: dict[Settings, str] = {}
        # With one thread a loop is parallel or it is not.
        self._left_out = frozenset(_SHARES if threads == 1 else ())
        self._planned: dict[Settings, PlannedKernel] = {}
        self._plan(RULES)

    def kernel(self, settings: Settings) -> PlannedKernel:
        """The kernel with these settings.

        Raises:
            IllegalPlan, Unsupported: there is none.
        """
        return self._planned.get(settings) or self._plan(settings)

    def decisions(self, settings: Settings) -> tuple[Decision, ...]:
        """See `SearchSpace`. A whole schedule leaves none.

        Raises:
            IllegalPlan, Unsupported: there is no kernel with these settings.
        """
        if is_whole(settings):
            return ()
        choices = self.kernel(settings).plan.choices
        return tuple(Decision.of(choice) for choice in choices if choice.knob.name not in self._left_out)

    def walk(self, decide: Callable[[Decision], Setting]) -> Settings:
        """See `SearchSpace`. A setting with which there is no kernel is noted as refused, and the rule's taken."""
        settings, decided = RULES, set[str]()
        ask = functools.cache(decide)
        while remaining := [each for each in self.decisions(settings) if each.key not in decided]:
            wanted = self._together(settings, [(decision, ask(decision)) for decision in remaining])
            if wanted is not None:
                decided.update(decision.key for decision in remaining)
                settings = wanted
                continue
            decision = remaining[0]
            decided.add(decision.key)
            wanted = _with(settings, [(decision, ask(decision))])
            settings = wanted if self.is_possible(wanted) else settings
        return settings

    def _together(self, settings: Settings, made: Sequence[tuple[Decision, Setting]]) -> Settings | None:
        """`settings` with all these decisions, if none changes another one.

        A walk plans the program twice then, and once for every knob otherwise; planning is what a walk takes time for.
        """
        wanted = _with(settings, made)
        try:
            then = self.decisions(wanted)
        except (IllegalPlan, Unsupported):
            return None
        return wanted if all(decision in then for decision, _ in made) else None

    def chosen(self, settings: Settings) -> Settings:
        """See `SearchSpace`. A whole schedule has none."""
        return () if is_whole(settings) else self.kernel(settings).plan.knobs

    def is_possible(self, settings: Settings) -> bool:
        """Whether there is a kernel with these settings; if not they are noted as refused."""
        if settings in self.refused:
            return False
        try:
            self.kernel(settings)
        except (IllegalPlan, Unsupported) as refusal:
            self.refused[settings] = _reason(refusal)
            return False
        return True

    def _plan(self, settings: Settings) -> PlannedKernel:
        steps = steps_of(settings)
        if steps is None:
            planned = plan_kernel(self.program, self.device, dict(settings))
        else:
            entry = ScheduleEntry(digest(self.program), self.device.name, steps=steps)
            planned = plan_entry(self.program, self.device, entry)
        self._planned[settings] = planned
        return planned


def whole_schedule(origin: str, steps: Sequence[Step]) -> Settings:
    """The settings that are all `steps` of a kernel, whose mapping is the rules'; `origin` is who made them."""
    return ((f"{_STEPS}{origin}", "\n".join(map(repr, steps))),)


def is_whole(settings: Settings) -> bool:
    """Whether they are a whole schedule."""
    return len(settings) == 1 and settings[0][0].startswith(_STEPS)


def steps_of(settings: Settings) -> tuple[Step, ...] | None:
    """The steps of a whole schedule; None if these are settings of knobs.

    Raises:
        IllegalPlan: they are no steps of this version.
    """
    if not is_whole(settings):
        return None
    return tuple(map(parse_step, str(settings[0][1]).splitlines()))


def described(settings: Settings) -> str:
    """The settings in a line, "" for the rules'."""
    steps = steps_of(settings)
    if steps is not None:
        return f"{len(steps)} steps of {settings[0][0].removeprefix(_STEPS)}"
    return ", ".join(f"{key} = {setting}" for key, setting in settings)


def random_settings(space: SearchSpace, source: random.Random) -> Settings:
    """A walk that sets every knob by chance."""
    return space.walk(lambda decision: source.choice(decision.values))


def neighbours(space: SearchSpace, settings: Settings) -> list[Settings]:
    """The settings that differ from `settings` in one knob, and in what this opens or closes; none is refused."""
    now = dict(space.chosen(settings))
    found = dict.fromkeys(
        space.walk(_deciding({**now, decision.key: value}))
        for decision in space.decisions(settings)
        for value in decision.values
        if not same(value, now[decision.key])
    )
    # A value that is refused leaves a knob as it was.
    found.pop(settings, None)
    return list(found)


def repaired(space: SearchSpace, wanted: Settings) -> Settings:
    """`wanted` as far as `space` has such knobs and values, which may be those of another kernel."""
    return space.walk(_deciding(dict(wanted)))


def same(one: Setting, other: Setting) -> bool:
    """Whether both are one setting; 1 and True are two."""
    return one == other and type(one) is type(other)


def _deciding(wanted: dict[str, Setting]) -> Callable[[Decision], Setting]:
    def decide(decision: Decision) -> Setting:
        setting = wanted.get(decision.key, decision.rule)
        return setting if any(same(setting, value) for value in decision.values) else decision.rule

    return decide


def _with(settings: Settings, made: Sequence[tuple[Decision, Setting]]) -> Settings:
    departing = {decision.key: setting for decision, setting in made if not same(setting, decision.rule)}
    return tuple(sorted({**dict(settings), **departing}.items()))


def _reason(refusal: HalideBackendError) -> str:
    return f"{refusal.where}: {refusal.what}" if refusal.where else refusal.what
