"""Makes a failing program small: fewer outputs, fewer lines, and given values in place of lines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

from .program import Given, Line, Program


def shrink(program: Program, fails: Callable[[Program], bool], budget: int = 120) -> Program:
    """The smallest program found with at most `budget` trials for which `fails` still holds."""
    trials = 0
    progress = True
    while progress and trials < budget:
        progress = False
        for smaller in _smaller(program):
            trials += 1
            if trials > budget:
                break
            if fails(smaller):
                program, progress = smaller, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    if len(program.outputs) > 1:
        for name in program.outputs:
            yield _alive(program, (name,))
    for number in reversed(range(len(program.lines))):
        yield from _without(program, number)
    for number, line in enumerate(program.lines):
        if line.target:
            given = _given(program, number)
            if given is not None:
                yield given


def _alive(program: Program, outputs: tuple[str, ...]) -> Program:
    """Only what `outputs` need; in-place lines stay."""
    needed = set(outputs)
    lines: list[Line] = []
    for line in reversed(program.lines):
        if not line.target or line.target in needed:
            needed |= set(line.names)
            lines.append(line)
    inputs = tuple(t for t in program.inputs if t.name in needed)
    return replace(program, inputs=inputs, lines=tuple(reversed(lines)), outputs=outputs)


def _without(program: Program, number: int) -> Iterator[Program]:
    line = program.lines[number]
    lines = program.lines[:number] + program.lines[number + 1 :]
    if not line.target:
        yield _alive(replace(program, lines=lines), program.outputs)
        return
    if any(line.target in other.names for other in lines):
        return
    outputs = tuple(dict.fromkeys(n for n in program.outputs if n != line.target)) or line.names[:1]
    yield _alive(replace(program, lines=lines), outputs)


def _given(program: Program, number: int) -> Program | None:
    """The value of line `number` becomes an input."""
    line = program.lines[number]
    if any(not other.target for other in program.lines[:number]):
        return None
    prefix = Program(program.inputs, (*program.lines[:number], line), (line.target,))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (value,) = prefix.function()(*(t.make() for t in program.inputs))
    except Exception:
        return None
    given = Given(line.target, value.detach().clone())
    rest = program.lines[:number] + program.lines[number + 1 :]
    return _alive(replace(program, inputs=(*program.inputs, given), lines=rest), program.outputs)
