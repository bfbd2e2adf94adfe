"""Steps from text: the calls that kernel texts have, `Split('out', 'x0', 'x0_o', 'x0_i', 8)`; nothing of it is run."""

from __future__ import annotations

import ast
from typing import Any, cast

from halide_backend.errors import IllegalPlan
from halide_backend.schedule.steps import Step


def parse_step(text: str) -> Step:
    """The step that `repr` wrote; arguments are literals.

    Raises:
        IllegalPlan: the text is no call of a step, or one with other arguments.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise ValueError("it is not a call")
        if any(keyword.arg is None for keyword in call.keywords):
            raise ValueError("its arguments have no names")
        arguments = [ast.literal_eval(argument) for argument in call.args]
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise IllegalPlan(
            f"{text!r} cannot be read as a step: {error}",
            where="steps",
            cure="write it as Split('func', 'x0', 'x0_o', 'x0_i', 8): the name of a directive, with literal arguments",
        ) from None
    kind: Any = Step.kinds.get(call.func.id)
    if kind is None:
        raise IllegalPlan(
            f"there is no step {call.func.id!r}", where=text, cure=f"use one of {', '.join(sorted(Step.kinds))}"
        )
    try:
        return cast(Step, kind(*map(_frozen, arguments), **{name: _frozen(value) for name, value in named.items()}))
    except TypeError as error:
        raise IllegalPlan(str(error), where=text, cure="give it the arguments of Halide's directive") from None


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
