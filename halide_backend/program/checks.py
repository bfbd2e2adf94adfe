"""Where a kernel looks at the program's checks: with a value that is computed over the same loops."""

from __future__ import annotations

from typing import TypeAlias

from halide_backend.errors import Unsupported
from halide_backend.program.loop_program import LoopProgram, Reduction

#: A store, by its buffer, or a reduction, by the position of its value.
Sink: TypeAlias = str | int


def sinks_of_checks(program: LoopProgram) -> dict[Sink, list[int]]:
    """Sink -> the conditions (positions of values) that its points are checked for.

    Raises:
        Unsupported: a condition over other loops than those of any sink.
    """
    found: dict[Sink, list[int]] = {}
    for check in program.checks:
        axes = program.values[check.condition].axes
        sinks: list[Sink] = [s.buffer for s in program.stores if axes <= {axis.name for axis in s.nest.axes}]
        for position, value in enumerate(program.values):
            if isinstance(value.attribute, Reduction) and check.condition < position:
                over = value.axes | {axis.name for axis in value.attribute.axes}
                sinks += [position] if axes <= over else []
        if not sinks:
            raise Unsupported("check-over-other-loops", f"a check for {check.error} over {', '.join(sorted(axes))}")
        found.setdefault(sinks[0], []).append(check.condition)
    return found
