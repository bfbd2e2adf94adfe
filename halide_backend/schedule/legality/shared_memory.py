"""Shared memory of a block: what its threads store together fits into what every GPU gives a block."""

from __future__ import annotations

import math
from collections.abc import Sequence

from halide_backend.build.target import SHARED_BYTES
from halide_backend.schedule.legality.nests import Kind, Nests
from halide_backend.schedule.legality.refusal import refuse
from halide_backend.schedule.stage import Stage
from halide_backend.schedule.steps import AlignStorage, Bound, BoundExtent, Step


def check_shared_memory(nests: Nests, steps: Sequence[Step]) -> None:
    """Check what a block stores of all that one Func reads. Funcs that are not needed at the same time may share their
    memory, so only Halide knows the sum of a block: the worker looks at its launch.

    Raises:
        IllegalPlan: a block has not so much.
    """
    stored = {func: size for func in nests.computed if (size := _bytes(nests, nests.stages[func], steps))}
    for reader in nests.stages.values():
        read = {func: stored[func] for func in dict.fromkeys(reader.calls) if func in stored}
        if sum(read.values()) > SHARED_BYTES:
            place = nests.computed[max(read, key=lambda func: read[func])]
            sizes = " and ".join(f"{size} bytes of {func}" for func, size in read.items())
            why = f"a block would keep {sizes} in shared memory, which has {SHARED_BYTES}"
            refuse(place.number, place.step, why, "make the tile smaller, or the block")


def _bytes(nests: Nests, stage: Stage, steps: Sequence[Step]) -> int:
    """What a block stores of a Func: 0 if each thread has its own, or if its size is known only at the launch."""
    place = nests.computed[stage.name]
    around = nests.enclosing(place)
    if any(loop.kind is Kind.THREADS for loop in around) or not any(loop.kind is Kind.BLOCKS for loop in around):
        return 0
    inside = nests.steps_inside(place)
    computed = {
        axis for nest, k in nests.around(place) for loop in nest.loops[:k] if not loop.fixed for axis in loop.axes
    }
    own = [step for step in steps if step.func == stage.name]
    extents = {step.var: step.extent for step in own if isinstance(step, Bound | BoundExtent)}
    aligned = {step.var: step.alignment for step in own if isinstance(step, AlignStorage)}
    size = math.ceil(stage.bits / 8)
    for loop in stage.loops:
        if loop.axis in computed and loop.name not in extents:
            return 0
        # Two loops of a Func may run along one axis: over chunks, and over the elements of one.
        within = min(inside.get(loop.axis, 1), loop.extent) if loop.fixed else inside.get(loop.axis, 1)
        extent = extents.get(loop.name, within)
        alignment = aligned.get(loop.name, 1)
        size *= -(-extent // alignment) * alignment
    return size
