"""Knobs: the numbers that a rule chooses, with the values among which a person or a search may choose otherwise.

A rule declares its knobs beside its code and asks for each where it needs it:

    TILE = Knob("transposes.tile", (4, 8, 16), "side of the tile through which a transposed operand is copied")
    side = choices.number(TILE, 8, "eight vector loads and stores of float32 on AVX2")

What was asked for, and what could have been, is the search space of that kernel: nothing has to be declared twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from halide_backend.errors import IllegalPlan, UnusedKnob

#: The value of a knob.
Setting: TypeAlias = int | bool | str


@dataclass(frozen=True)
class Knob:
    """`name` is "rule.knob", `values` what may be asked for besides what the rule chooses, in ascending order."""

    name: str
    values: tuple[Setting, ...]
    meaning: str


@dataclass(frozen=True)
class Choice:
    """The `setting` of a knob in one kernel: the rule's, which is `rule`, for the reason `why`, or another.

    `at` names the Func or axis that it is for, where a rule asks several times.
    """

    knob: Knob
    at: str
    setting: Setting
    rule: Setting
    why: str

    @property
    def key(self) -> str:
        """How a plan names it: "rule.knob", or "rule.knob@func"."""
        return f"{self.knob.name}@{self.at}" if self.at else self.knob.name


class Choices:
    """What the rules chose for one kernel, in order; `requested` has settings by key, or by knob for all places."""

    def __init__(self, requested: Mapping[str, Setting] | None = None) -> None:
        self._requested = dict(requested or {})
        self._made: dict[str, Choice] = {}

    def choose(self, knob: Knob, rule: Setting, why: str, *, at: str = "") -> Setting:
        """The setting of `knob`: what was requested, else `rule`.

        Raises:
            IllegalPlan: what was requested is none of the knob's values.
        """
        choice = Choice(knob, at, rule, rule, why)
        wanted = self._requested.get(choice.key, self._requested.get(knob.name, rule))
        if not any(wanted == value and type(wanted) is type(value) for value in (rule, *knob.values)):
            raise IllegalPlan(
                f"{wanted!r} is no value of this knob",
                where=choice.key,
                cure=f"use one of {', '.join(map(repr, knob.values))}, or {rule!r}, which the rule chooses",
            )
        self._made[choice.key] = Choice(knob, at, wanted, rule, why)
        return wanted

    def number(self, knob: Knob, rule: int, why: str, *, at: str = "") -> int:
        """`choose` for a knob whose values are numbers."""
        return int(self.choose(knob, rule, why, at=at))

    def flag(self, knob: Knob, rule: bool, why: str, *, at: str = "") -> bool:
        """`choose` for a knob that is a decision."""
        return bool(self.choose(knob, rule, why, at=at))

    def require(self, knob: Knob, possible: bool, reason: str) -> None:
        """Refuse what was requested where it, or what the rule chose because of it for `knob`, is not `possible`.

        Raises:
            IllegalPlan: it is not, for the `reason`.
        """
        if not possible and (departing := [choice for choice in self.made if choice.setting != choice.rule]):
            wanted = ", ".join(f"{choice.key} = {choice.setting!r}" for choice in departing)
            raise IllegalPlan(reason, where=knob.name, cure=f"leave out {wanted}, or choose another value")

    @property
    def made(self) -> tuple[Choice, ...]:
        """Every choice so far."""
        return tuple(self._made.values())

    @property
    def settings(self) -> tuple[tuple[str, Setting], ...]:
        """The setting of every choice so far, by its key."""
        return tuple((choice.key, choice.setting) for choice in self._made.values())

    def check_all_used(self) -> None:
        """Make sure that every request was for a knob of this kernel.

        Raises:
            UnusedKnob: one was not.
        """
        known = {name for choice in self._made.values() for name in (choice.key, choice.knob.name)}
        if unknown := sorted(self._requested.keys() - known):
            raise UnusedKnob(
                "no rule of this kernel asks for this knob",
                where=unknown[0],
                cure=f"use one of {', '.join(sorted(self._made)) or 'none: this kernel has no knobs'}",
            )
