"""Outputs that are computed together, or with one what is checked of its elements: their loops are the same ones."""

from __future__ import annotations

from halide_backend.schedule.legality.nests import Kind, Nest, NestLoop, Nests, Place
from halide_backend.schedule.legality.refusal import refuse
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import Fuse, Step


def check_together(nests: Nests, steps: list[Step]) -> None:
    """Check the loops of outputs that share some.

    Raises:
        IllegalPlan: they differ, or Halide would lose their bounds.
    """
    for func, place in nests.children.items():
        child, parent = nests.nests[func, None], nests.nests[place.consumer, None]
        if child.stage.role is not Role.OUTPUT and not _is_beside(nests, func, parent.stage):
            refuse(place.number, place.step, "only outputs of tensors are computed together, and checks with one")
        if (nests.shifted.keys() | nests.specialized) & {func, place.consumer}:
            refuse(
                place.number, place.step, "one has other loops where its loops are short", 'split with "GuardWithIf"'
            )
        if place.consumer in nests.children:
            refuse(place.number, place.step, f"{place.consumer} is computed with another output itself")
        if _shared(child, place) != _shared(parent, place):
            why = f"the loops around {place.var!r} differ from those of {place.consumer}"
            refuse(place.number, place.step, why, "give both outputs the same steps for them")
    outputs = nests.outputs
    if nests.on_gpu and len(outputs) > 1:
        names = {stage.name for stage in outputs}
        for number, step in enumerate(steps):
            if isinstance(step, Fuse) and step.func in names and _loses_bounds(nests, step):
                why = "Halide loses the bounds of a fused loop where outputs are computed together"
                refuse(number, step, why, "give the loops dimensions of the grid")


def _is_beside(nests: Nests, func: str, parent: Stage) -> bool:
    """Whether `func` is stored whole and no tensor needs it, nor is the memory that it reads written meanwhile."""
    place = nests.computed.get(func)
    whole = place is not None and not place.consumer and not nests.on_gpu
    needed = any(func in nests.needs(stage.name) for stage in nests.outputs)
    return whole and not needed and nests.outputs == [parent] and not (parent.overwrites or parent.replaces)


def _shared(nest: Nest, place: Place) -> list[tuple[object, ...]]:
    """The loops from the outermost one down to the shared one, as far as they have to agree.

    Threads of a block are so many whatever axis they share out: one of them stores what a line is reduced to.
    """
    number = nest.find(place.var)
    loops = nest.loops[len(nest.loops) if number is None else number :]
    return [(loop.name, loop.extent, loop.kind, None if _is_block(loop) else loop.axes) for loop in loops]


def _is_block(loop: NestLoop) -> bool:
    return loop.kind is Kind.THREADS and loop.fixed


def _loses_bounds(nests: Nests, step: Fuse) -> bool:
    """Whether the fused loop runs along several axes that blocks share out."""
    return len(nests.fused[step.func, step.fused].keys() & set(nests.outer)) > 1
