"""Rows in parallel, each row's loops vectorized along memory: softmax, layer norm, sums over the last dimension."""

from __future__ import annotations

import math

from halide_backend.schedule.cpu.kernel import CpuKernel, Level, Nest, loop_along, vectors
from halide_backend.schedule.steps import ComputeWith, Parallel, Reorder, Split, Step


def rows(kernel: CpuKernel) -> Nest:
    """The rows of all outputs in one loop nest."""
    parent, row = kernel.parent, kernel.row
    work = max(1, kernel.work // math.prod(loop_along(parent, axis).extent for axis in row))
    chosen, grain = _parallel_axis(kernel, work)
    steps: list[Step] = []
    for stage in kernel.outputs:
        inner = [loop for loop in stage.loops if loop.axis not in row]
        order: list[str] = []
        if inner:
            vector = vectors(stage.name, inner[0].name, inner[0].extent, kernel.lanes(stage.bits))
            steps += vector.steps
            order += [*vector.loops, *(loop.name for loop in inner[1:])]
        for axis in reversed(row):
            if axis == chosen and grain > 1:
                steps.append(Split(stage.name, axis, f"{axis}_t", f"{axis}_r", grain))
                order += [f"{axis}_r", f"{axis}_t"]
            else:
                order.append(axis)
        steps.append(Reorder(stage.name, tuple(order)))
        if chosen:
            steps.append(Parallel(stage.name, f"{chosen}_t" if grain > 1 else chosen))
    last = row[-1]
    level = Level(parent.name, f"{last}_r" if grain > 1 and chosen == last else last)
    steps += [ComputeWith(stage.name, parent.name, level.var) for stage in kernel.outputs if stage is not parent]
    return Nest(tuple(steps), level)


def _parallel_axis(kernel: CpuKernel, work: int) -> tuple[str, int]:
    """The row axis that threads share, and how many of its steps make one task; a row has `work` operations."""
    if not kernel.parallel:
        return "", 1
    row, parent = kernel.row, kernel.parent
    chosen = next((axis for axis in row if loop_along(parent, axis).extent >= 8), None)
    if chosen is None:
        chosen = max(row, key=lambda axis: loop_along(parent, axis).extent)
    below = row[row.index(chosen) + 1 :]
    inside = work * math.prod(loop_along(parent, axis).extent for axis in below)
    extent = loop_along(parent, chosen).extent
    return chosen, min(max(1, kernel.task_work // inside), max(1, extent // 16))
