"""Where Funcs are computed and stored: values that must be stored are, and nothing is computed far too often."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby

from halide_backend.errors import IllegalPlan, OldValueLost
from halide_backend.schedule.legality.nests import Kind, NestLoop, Nests, Place, points
from halide_backend.schedule.legality.refusal import refuse, refuse_func
from halide_backend.schedule.stage import Role, Stage
from halide_backend.schedule.steps import BoundExtent, BoundStorage, FoldStorage, Split, Step, StoreIn

#: Points that may be computed again, however few the kernel has, and how many times as many as it has.
REPEATED_POINTS, REPEATS = 1 << 22, 16

#: Bytes of a Func on a thread's stack.
MOST_STACK = 16 << 10

_PLAIN = (Role.INLINE, Role.SHARED, Role.STAGED_LOAD)


def check_places(nests: Nests, steps: list[Step]) -> None:
    """Check the loops that places name, and how often what lies there is computed.

    Raises:
        IllegalPlan: a loop does not exist, a value is not stored that has to be, or is computed too often.
    """
    _check_loops(nests)
    for stage in nests.stages.values():
        place = nests.computed.get(stage.name)
        if place is None:
            _check_inlined(nests, stage)
        else:
            _check_repetition(nests, stage, place)
    for func, place in nests.stored.items():
        _check_storage(nests, func, place)
        _check_windows(nests, steps, func)
    room = {_dimension(nests, step): step.extent for step in steps if isinstance(step, BoundStorage)}
    bound = {(step.func, step.var): step.extent for step in steps if isinstance(step, BoundExtent)}
    for number, step in enumerate(steps):
        if isinstance(step, FoldStorage) and step.func not in nests.stored:
            refuse(number, step, "lines take turns only where storage outlives what is computed", "add a StoreAt")
        if isinstance(step, BoundExtent):
            _check_points(nests, number, step, bound)
        if isinstance(step, BoundStorage):
            _check_room(nests, number, step, room)
        if isinstance(step, StoreIn) and step.memory == "Stack":
            _check_stack(nests, number, step)


def _dimension(nests: Nests, step: BoundStorage) -> tuple[str, str]:
    """The Func whose storage is bound, and the axis along which it is."""
    return step.func, next(loop.axis for loop in nests.stages[step.func].loops if loop.name == step.var)


def _check_loops(nests: Nests) -> None:
    for places in (nests.computed, nests.stored, nests.children):
        for func, place in places.items():
            if not place.consumer:
                continue
            found = [nest for nest in nests.of_func(place.consumer) if nest.find(place.var) is not None]
            if not found:
                names = sorted({loop.name for nest in nests.of_func(place.consumer) for loop in nest.loops})
                why = f"{place.consumer} has no loop {place.var!r} when all steps are done"
                refuse(place.number, place.step, why, f"it has {', '.join(names) or 'none'}")
            if places is nests.computed and func not in nests.needed_beside(place.consumer):
                refuse(place.number, place.step, f"{place.consumer} does not need it")
            if places is nests.computed and place.consumer == func:
                refuse(place.number, place.step, "a Func is not computed inside itself")


def _check_inlined(nests: Nests, stage: Stage) -> None:
    if stage.role in (Role.OUTPUT, Role.SCATTER):
        return
    if stage.role in _PLAIN:
        if any(loop.kind is not Kind.SERIAL for nest in nests.of_func(stage.name) for loop in nest.loops):
            refuse_func(stage.name, "it is computed where it is used, and has no loops of its own", "add a ComputeAt")
        return
    why = {
        Role.PRESERVED: "overwritten memory is read outside the loops that write it",
        Role.SNAPSHOT: "memory is overwritten before this value is read",
        Role.SERIAL: "the value is a loop of up to 2**31 steps, of which a vector would do all",
    }
    error = OldValueLost if stage.role is Role.PRESERVED else IllegalPlan
    refuse_func(
        stage.name, why.get(stage.role, "it would be computed anew for every use"), "say where: ComputeAt", error
    )


def _check_repetition(nests: Nests, stage: Stage, place: Place) -> None:
    around = nests.enclosing(place)
    vectors = [loop.name for loop in around if loop.kind is Kind.VECTOR]
    if vectors:
        refuse(place.number, place.step, f"the loop {vectors[0]!r} is a vector: its steps run as one")
    if stage.role in (Role.SERIAL, Role.SNAPSHOT) and place.consumer:
        refuse(place.number, place.step, "this value is computed before everything else", "use ComputeRoot")
    own = {loop.axis for loop in stage.loops}
    if nests.on_gpu and stage.role is not Role.REDUCTION:
        return  # A thread reads a word again from its cache.
    outside = [loop for loop in around if not loop.axes & own]
    if not all([loop.fixed for loop in outside] + [loop.fixed for loop in (*stage.loops, *stage.updates)]):
        return  # How often is known when the kernel is called.
    again = math.prod(loop.extent for loop in outside)
    if again <= 1:
        return
    whole = sum(points(other) for other in nests.stages.values())
    if again * points(stage) > max(REPEATED_POINTS, REPEATS * whole):
        refuse(place.number, place.step, f"its {points(stage)} points would be computed {again} times")


def _check_storage(nests: Nests, func: str, place: Place) -> None:
    computed = nests.computed.get(func)
    if computed is None or not computed.consumer:
        refuse(place.number, place.step, "it is not computed inside a loop", "add a ComputeAt")
    around = nests.enclosing(computed)
    if not place.consumer:
        between: list[NestLoop] = around
    else:
        names = [loop.name for loop in around]
        if place.var not in names or place.consumer != computed.consumer:
            refuse(place.number, place.step, "it is computed outside of this loop", "store it at a loop around that")
        between = around[: names.index(place.var)]
    if any(loop.kind is not Kind.SERIAL for loop in between):
        refuse(place.number, place.step, "steps that run side by side would share the storage")
    if any(loop.axes & axes for loop in between for axes in nests.shifted.values()):
        refuse(place.number, place.step, "the last steps of a loop that shares the storage are shifted inwards")


def _check_windows(nests: Nests, steps: list[Step], func: str) -> None:
    """Halide computes what a Func does not hold yet, a window that slides: with guarded splits of it some points were
    left out (bilinear of 8 channels, found by a search)."""
    stage, place = nests.stages[func], nests.computed[func]
    inside = nests.steps_inside(place)
    lengths = {loop.name: 0 if nests.has_more(func) else inside.get(loop.axis, 1) for loop in stage.loops}
    for number, step in enumerate(steps):
        if not isinstance(step, Split) or step.func != func or step.old not in lengths or step.update is not None:
            continue
        length = lengths.pop(step.old)
        if step.tail == "GuardWithIf" and (not length or length % step.factor):
            needed = f"{length} points are needed at a time" if length else "it may have more points than its loops"
            refuse(number, step, f"{func} is stored outside of where it is computed, and {needed}", "store it there")
        lengths |= {step.outer: length // step.factor, step.inner: step.factor}


def _check_room(nests: Nests, number: int, step: BoundStorage, room: Mapping[tuple[str, str], int]) -> None:
    """What is computed at a time is as much as the loops of an output inside of that place run along, or as a reduction
    has `room` for, and there is room for it. Without room Halide would write beyond the storage."""
    place = nests.computed.get(step.func)
    if place is None or not place.consumer or step.func in nests.stored:
        refuse(number, step, "it is not stored where it is computed, inside of a loop", "add a ComputeAt")
    _, axis = _dimension(nests, step)
    consumer = nests.stages[place.consumer]
    together = {place.consumer, *(name for name, child in nests.children.items() if child.consumer == place.consumer)}
    for user in nests.users(step.func) - (together if consumer.role is Role.OUTPUT else {place.consumer}):
        known = nests.stages[user].role in (*_PLAIN, Role.PRESERVED, Role.REDUCTION)
        if not known or not _is_beside(nests, user, place) or _reduces(nests.stages[user], axis):
            refuse(number, step, f"{user} needs it, too, and may need more of it")
    if consumer.role is Role.REDUCTION and not nests.has_more(step.func) and not _reduces(consumer, axis):
        needed = room.get((place.consumer, axis), 0)
        if not 0 < needed <= step.extent:
            refuse(number, step, f"{place.consumer} has another room, or none", "give both the same")
        return
    # Outputs that are computed together have the loops that they share under one name.
    levels = {user: nests.nests[user, None].find(place.var) for user in together}
    if consumer.role is not Role.OUTPUT or None in levels.values() or nests.has_more(step.func):
        refuse(number, step, "how much of it is needed at a time is not known")
    for user, level in levels.items():
        inside = [loop for loop in nests.nests[user, None].loops[:level] if axis in loop.axes]
        needed = math.prod(loop.extent for loop in inside)
        if needed > step.extent or any(not loop.fixed or len(loop.axes) > 1 for loop in inside):
            refuse(number, step, f"{user} needs {needed} points at a time, or more", "give it room for them")


def _is_beside(nests: Nests, func: str, place: Place) -> bool:
    """Whether `func` is computed at `place`, inside of it, or for what is computed there."""
    nest = nests.nests[place.consumer, None]
    level = nest.find(place.var)
    around, seen = nests.computed.get(func), {func}
    while around is not None and around.consumer not in seen:
        inner = nest.find(around.var) if around.consumer == place.consumer else None
        if level is not None and inner is not None and inner <= level:
            return True
        seen.add(around.consumer)
        around = nests.computed.get(around.consumer)
    return False


def _axes(nests: Nests, func: str) -> set[str]:
    return {loop.axis for loop in nests.stages[func].loops}


def _reduces(stage: Stage, axis: str) -> bool:
    return any(loop.axis == axis for loop in stage.updates)


def _check_points(nests: Nests, number: int, step: BoundExtent, bound: Mapping[tuple[str, str], int]) -> None:
    """The points of a dimension are enough where all other loops along it are around the Func, or around one that is
    `bound` to as many, of which all are computed where the Func is."""
    axis = next(loop.axis for loop in nests.stages[step.func].loops if loop.name == step.var)
    place = nests.computed.get(step.func)
    around = nests.around(place) if place is not None else []
    if any(axis in nests.shifted.get(nest.stage.name, ()) for nest, _ in around):
        refuse(number, step, "the last steps of the loop around it are shifted inwards: they need other points")
    inside: list[int] = []
    for func, own in groupby(around, key=lambda found: found[0].stage.name):
        along = [(k < level, loop) for nest, level in own for k, loop in enumerate(nest.loops) if axis in loop.axes]
        inside += [nests.fused.get((func, loop.name), {}).get(axis, loop.extent) for within, loop in along if within]
        dimensions = [loop.name for loop in nests.stages[func].loops if loop.axis == axis]
        if all(within for within, _ in along) and [bound.get((func, name)) for name in dimensions] == [step.extent]:
            break
    # A tile's points are counted by dimensions of their own, and its number by this one.
    sides = {loop.extent for loop in nests.stages[step.func].loops if loop.axis not in nests.outer}
    needed = math.prod(steps for steps in inside if steps > 1)
    if not around or needed not in {step.extent, *sides}:
        refuse(number, step, f"{needed} points are needed where it is computed", "compute it further inside")
    tiles = nests.stages[step.func].role is Role.STAGED_LOAD
    _check_whole_tiles(nests, number, step, axis, max(sides, default=1) if tiles else 0)


def _check_whole_tiles(nests: Nests, number: int, step: BoundExtent, axis: str, side: int) -> None:
    """Tiles of an axis that is one of whole tiles, of so many elements a `side`, are read without a guard, as is what
    is no tile: no loop may go beyond its end."""
    if axis == nests.narrow and nests.stages[step.func].role is Role.REDUCTION:
        alone = [name for name in nests.computed if nests.stages[name].role in _PLAIN and axis in _axes(nests, name)]
        if alone:
            refuse(number, step, f"{alone[0]} would be read beyond the end of {axis}", "compute it where it is used")
        return
    if nests.on_gpu or axis in nests.clamped:
        return
    for nest, _ in nests.around(nests.computed[step.func]):
        length = next((loop.extent for loop in nest.stage.loops if loop.axis == axis and loop.fixed), None)
        along = [loop for loop in nest.loops if axis in loop.axes]
        steps = math.prod(loop.extent for loop in along)
        # A reduction has its guard with it, in each part of it as well.
        if length is None and not side and any(loop.part for loop in along) and not _reduces(nest.stage, axis):
            refuse(number, step, f"{nest.stage.name} may have more steps along {axis} than there are points")
        if length is not None and (not side or length % side == 0) and steps > length:
            why = (
                f"{nest.stage.name} has {steps} steps along {axis}, which is {length} long: tiles beyond are not there"
            )
            refuse(number, step, why, "split by a factor that divides the length")


def _check_stack(nests: Nests, number: int, step: StoreIn) -> None:
    stage = nests.stages[step.func]
    size = points(stage) * max(stage.bits, 8) // 8
    if size > MOST_STACK or any(not loop.fixed for loop in stage.loops) or nests.has_more(stage.name):
        refuse(number, step, f"{size} bytes, or unknown: more than {MOST_STACK} on a thread's stack", "use Heap")
