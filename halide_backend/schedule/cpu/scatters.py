"""Stores at computed positions: rows one after another, since two may meet at one place, columns side by side."""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import CpuKernel, vectors
from halide_backend.schedule.stage import Stage
from halide_backend.schedule.steps import Parallel, Reorder, Split, Step


def scatter(kernel: CpuKernel, stage: Stage) -> list[Step]:
    """Steps of the update of `stage`; none where it has no columns worth a vector."""
    columns = [loop for loop in stage.loops if loop.name != "p"]
    if not columns or columns[0].extent < 4:
        return []
    column, lanes = columns[0], kernel.lanes(stage.bits)
    block = max(lanes, -(-column.extent // 4 // 16) * 16)
    vector = vectors(stage.name, f"{column.name}_i", block, lanes, update=0)
    updates = tuple(loop.name for loop in stage.updates)
    steps: list[Step] = [
        Split(stage.name, column.name, f"{column.name}_b", f"{column.name}_i", block, 0),
        *vector.steps,
        Reorder(stage.name, (*vector.loops, *updates, f"{column.name}_b"), update=0),
    ]
    if kernel.parallel:
        steps.append(Parallel(stage.name, f"{column.name}_b", update=0))
    return steps
