"""How a step is refused: by its number and its text."""

from __future__ import annotations

from typing import NoReturn

from halide_backend.errors import IllegalPlan
from halide_backend.schedule.steps import Step


def refuse(
    number: int,
    step: Step,
    why: str,
    cure: str = "leave this step out, or choose as the rules do",
    error: type[IllegalPlan] = IllegalPlan,
) -> NoReturn:
    """Refuse step `number`, counted from 0.

    Raises:
        IllegalPlan: always, of the class `error`.
    """
    raise error(why, where=f"step {number}, {step!r}", cure=cure)


def refuse_func(func: str, why: str, cure: str, error: type[IllegalPlan] = IllegalPlan) -> NoReturn:
    """Refuse a plan in which a step for `func` is missing.

    Raises:
        IllegalPlan: always, of the class `error`.
    """
    raise error(why, where=f"Func {func}", cure=cure)
