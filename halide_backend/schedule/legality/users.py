"""Users of Funcs: what a Func is computed for lies inside of the loop where it is computed."""

from __future__ import annotations

from halide_backend.schedule.legality.nests import Nests, Place
from halide_backend.schedule.legality.refusal import refuse
from halide_backend.schedule.stage import Role


def check_users(nests: Nests) -> None:
    """Check that the loop where a Func is computed is around all that needs it. Halide refuses other places itself, but
    in a worker and without naming the step.

    Raises:
        IllegalPlan: something needs it outside of the loop.
    """
    for func, place in nests.computed.items():
        # Of old values old_values.py knows more: where they are read decides what they are.
        if not place.consumer or nests.stages[func].role in (Role.PRESERVED, Role.SNAPSHOT):
            continue
        outside = sorted(user for user in nests.users(func) if not _is_inside(nests, user, place))
        if outside:
            why = f"{', '.join(outside)} needs it too, outside of the loop {place.var!r} of {place.consumer}"
            refuse(place.number, place.step, why, "compute it further outside, or the others inside")


def _is_inside(nests: Nests, func: str, place: Place) -> bool:
    """Whether all loops of `func` that are its own are inside of the loop at `place`, or it has that loop."""
    if func == place.consumer:
        return True
    if func in nests.children:
        return _has_loop(nests, func, place)
    own = nests.computed.get(func)
    return own is not None and any(
        _has_loop(nests, nest.stage.name, place) and level <= (nest.find(place.var) or 0)
        for nest, level in nests.around(own)
    )


def _has_loop(nests: Nests, func: str, place: Place) -> bool:
    """Whether the loop at `place` is one of `func`, or one that outputs computed together have in common."""
    child = nests.children.get(func)
    if child is None or func == place.consumer:
        return func == place.consumer
    parent = nests.nests[child.consumer, None]
    return child.consumer == place.consumer and (parent.find(place.var) or 0) >= (parent.find(child.var) or 0)
