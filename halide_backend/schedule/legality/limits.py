"""Limits without which a compiler would run for minutes, or out of memory."""

from __future__ import annotations

import math

from halide_backend.schedule.legality.nests import Kind, Nest, Nests
from halide_backend.schedule.legality.refusal import refuse
from halide_backend.schedule.steps import Step, Unroll, Vectorize

#: Copies of one definition that unrolled loops write, its own and those around it.
MOST_COPIES = 512


def check_limits(nests: Nests, steps: list[Step]) -> None:
    """Check how often the definitions of a kernel are written out.

    Raises:
        IllegalPlan: one is, too often.
    """
    for nest in nests.nests.values():
        copies = _copies(nests, nest)
        if copies <= MOST_COPIES:
            continue
        for number, step in reversed(list(enumerate(steps))):
            if isinstance(step, (Unroll, Vectorize)) and step.func == nest.stage.name and step.update == nest.update:
                refuse(number, step, f"the definition would be written {copies} times", "unroll fewer loops")


def _copies(nests: Nests, nest: Nest) -> int:
    """How often the compiler sees the body of `nest`: unrolled loops, of those that are computed inside others only
    what is left of their axis there."""
    place = nests.computed.get(nest.stage.name)
    inside: dict[str, int] = {}
    copies = 1
    if place is not None and place.consumer:
        for outer, number in nests.around(place):
            for k, loop in enumerate(outer.loops):
                if len(loop.axes) == 1:
                    (axis,) = loop.axes
                    inside[axis] = inside.get(axis, 1) * (loop.extent if k < number else 1)
        copies = math.prod(loop.extent for loop in nests.enclosing(place) if loop.kind is Kind.UNROLLED)
    for loop in nest.loops:
        if loop.kind is Kind.UNROLLED:
            left = min((inside[axis] for axis in loop.axes if axis in inside), default=loop.extent)
            copies *= min(loop.extent, left) if not loop.part else loop.extent
    return copies
