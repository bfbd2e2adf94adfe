"""Limits without which a compiler would run for minutes, or out of memory."""

from __future__ import annotations

import math

from halide_backend.schedule.legality.nests import Kind, Nest, NestLoop, Nests
from halide_backend.schedule.legality.refusal import refuse, refuse_func
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import Step, Unroll, Vectorize

#: Copies of one definition that unrolled loops write, its own and those around it.
MOST_COPIES = 512

#: Steps of loops that lie inside of a vector.
MOST_WIDENED = 16


def check_limits(nests: Nests, steps: list[Step]) -> None:
    """Check how many copies of its definitions unrolling makes of a kernel.

    Raises:
        IllegalPlan: one is, too often.
    """
    for nest in nests.nests.values():
        _check_vector(nests, nest)
        copies = _copies(nests, nest)
        if copies <= MOST_COPIES:
            continue
        for number, step in reversed(list(enumerate(steps))):
            if isinstance(step, (Unroll, Vectorize)) and step.func == nest.stage.name and step.update == nest.update:
                refuse(number, step, f"the definition would be written {copies} times", "unroll fewer loops")


def _check_vector(nests: Nests, nest: Nest) -> None:
    """A vector of whole loops: each number in them becomes a vector, and their compilation took up to 12 s. The initial
    value of a reduction is short."""
    if nest.stage.role is Role.REDUCTION and nest.update is None:
        return
    vector = next((k for k, loop in enumerate(nest.loops) if loop.kind is Kind.VECTOR), 0)
    left = _left(nests, nest)
    inside = [loop for loop in nest.loops[:vector] if loop.kind is not Kind.UNROLLED]
    if math.prod(left[loop.name] for loop in inside) > MOST_WIDENED:
        longest = max(inside, key=lambda loop: left[loop.name])
        why = f"the loop {nest.loops[vector].name!r} is a vector around the loop {longest.name!r}"
        refuse_func(nest.stage.name, why, "Reorder them: what is a vector comes first")


def _copies(nests: Nests, nest: Nest) -> int:
    """How often the compiler sees the body of `nest`, because of its unrolled loops and those around it."""
    place, left = nests.computed.get(nest.stage.name), _left(nests, nest)
    around = nests.enclosing(place) if place is not None and place.consumer else []
    outer = math.prod(loop.extent for loop in around if loop.kind is Kind.UNROLLED)
    return outer * math.prod(left[loop.name] for loop in nest.loops if loop.kind is Kind.UNROLLED)


def _left(nests: Nests, nest: Nest) -> dict[str, int]:
    """Steps of each loop of `nest` where it is computed: of an axis along which loops around it run, what is left."""
    place = nests.computed.get(nest.stage.name)
    inside: dict[str, int] = {}
    around: set[str] = set()
    if place is not None and place.consumer:
        around = {loop.name for loop in nests.enclosing(place)}
        inside = nests.steps_inside(place)

    def steps(loop: NestLoop) -> int:
        if loop.name in around:
            return 1
        left = [inside[axis] for axis in loop.axes if axis in inside]
        if loop.part and left:
            # Threads take the other pieces.
            others = (other for other in nest.loops if other.part and other.axes == loop.axes)
            pieces = math.prod(other.extent for other in others if other.kind is not Kind.UNROLLED)
            left = [-(-min(left) // pieces)] if loop.kind is Kind.UNROLLED else []
        return min([loop.extent, *left])

    return {loop.name: steps(loop) for loop in nest.loops}
