"""Values that are read at other coordinates than their own, as functions of a row: stored around the loops along these.

Their columns are computed a few vectors at a time, for all rows: what only columns need, as the places from which they
gather, is computed once for all rows.
"""

from __future__ import annotations

from itertools import takewhile

from halide_backend.schedule.cpu.kernel import CpuKernel, Nest, vectors
from halide_backend.schedule.cpu.separate import own_nest
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Stage
from halide_backend.schedule.steps import ComputeAt, ComputeRoot, Parallel, Reorder, Split, Step, Unroll

STORED = Knob(
    "functions.stores", (False, True), "keep a value that is read at several rows, instead of computing it for each"
)
VECTORS = Knob("functions.vectors", (1, 2, 4, 8), "vectors of columns that are computed together, for all rows")

#: Vectors of columns: what they gather from fits into registers.
_VECTORS = 4


def function(kernel: CpuKernel, stage: Stage, nest: Nest) -> list[Step]:
    """Steps that compute `stage`, which is read along its axes `shifted`, around the loops of `nest` along these."""
    why = "the rows of what is computed mostly need the same ones"
    if nest.level is None or not kernel.choices.flag(STORED, True, why, at=stage.name):
        return []
    rows = rows_of(kernel, stage)
    outside = list(takewhile(lambda each: each[0] not in rows, nest.around))
    if not outside:
        return [ComputeRoot(stage.name), *own_nest(kernel, stage)]
    level = outside[-1][1]
    steps: list[Step] = [ComputeAt(stage.name, level.parent, level.var)]
    column = next((loop for loop in stage.loops if loop.axis == kernel.contiguous), None)
    rest = [loop for loop in stage.loops if loop is not column]
    if column is not None:
        lanes = kernel.lanes(stage.bits)
        # Beyond the end of a row its last element is computed once more, where loads read no further.
        tail = "RoundUp" if column.axis in kernel.graph.clamped else Split.tail
        vector = vectors(stage.name, column.name, column.extent, lanes, tail=tail)
        why = "places to gather from, and weights, in registers"
        count = min(kernel.choices.number(VECTORS, _VECTORS, why, at=stage.name), -(-column.extent // lanes))
        inner, outer = vector.loops
        together = f"{outer}_u"
        steps += [
            *vector.steps,
            Split(stage.name, outer, outer, together, count),
            Unroll(stage.name, together),
            Reorder(stage.name, (inner, together, *(loop.name for loop in rest), outer)),
        ]
    if kernel.parallel and nest.threads not in {axis for axis, _ in outside}:
        steps.append(Parallel(stage.name, max(rest, key=lambda loop: loop.extent if loop.axis in rows else 0).name))
    return steps


def rows_of(kernel: CpuKernel, stage: Stage) -> frozenset[str]:
    """The axes along which `stage`, or what needs it, is read at other coordinates than its own."""
    found, seen, stack = set(stage.shifted), {stage.name}, [stage]
    while stack:
        # Each once: from a value of a long formula there are thousands of ways to the outputs.
        users = [user for user in kernel.graph.consumers(stack.pop().name) if user.name not in seen]
        seen.update(user.name for user in users)
        stack += users
        found.update(*(user.shifted for user in users))
    return frozenset(found)
