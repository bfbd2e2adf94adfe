"""Old values of overwritten memory: Halide knows nothing of two buffers over one pointer."""

from __future__ import annotations

from halide_backend.errors import OldValueLost
from halide_backend.schedule.legality.nests import Nests, Place
from halide_backend.schedule.legality.refusal import refuse, refuse_func
from halide_backend.schedule.stage import Role, Stage

_APART = "overwritten memory is read outside the loops that write it"
_CURE = "compute it inside the innermost loop that all outputs share, around those that are reduced"


def check_old_values(nests: Nests) -> None:
    """Check that overwritten memory is read before it is written.

    `ComputeWith` runs the parent before its children in each fused iteration. So the old value must be stored inside
    the innermost loop that all outputs share: it is then read before any output of that iteration is written, and
    iterations touch disjoint memory, if none of them needs the whole of an axis that another one writes a part of.

    Raises:
        OldValueLost: the steps do not guarantee this.
    """
    for stage in nests.stages.values():
        if stage.role is Role.PRESERVED or stage.old:
            _check(nests, stage, nests.computed[stage.name])


def _check(nests: Nests, stage: Stage, place: Place) -> None:
    outputs = nests.outputs
    if not place.consumer:
        if len(outputs) > 1:
            refuse(place.number, place.step, f"{_APART}: another output may come first", _CURE, OldValueLost)
        return
    for output in outputs:
        child = nests.children.get(output.name)
        shares = child is not None and (child.consumer, child.var) == (place.consumer, place.var)
        if output.name != place.consumer and not shares:
            refuse_func(output.name, _APART, _CURE, OldValueLost)
    reduced = {
        loop.axis
        for other in nests.stages.values()
        if stage.name in nests.needs(other.name) and other.role is not Role.SCATTER
        for loop in other.updates
    }
    for nest, number in nests.around(place):
        crossing = [loop.name for loop in nest.loops[number:] if loop.axes & reduced]
        if crossing:
            refuse(
                place.number,
                place.step,
                f"{_APART}: each step of {crossing[0]!r} needs what others write",
                _CURE,
                OldValueLost,
            )
