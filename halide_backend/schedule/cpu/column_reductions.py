"""A reduction across memory: an accumulator for each column, rows one after another."""

from __future__ import annotations

import math

from halide_backend.schedule.cpu.kernel import CpuKernel, Level, vectors
from halide_backend.schedule.cpu.vector_reductions import RUNNING_TERMS
from halide_backend.schedule.stage import Stage
from halide_backend.schedule.steps import ComputeAt, ComputeRoot, Reorder, RFactor, Split, Step


def reduce_columns(kernel: CpuKernel, stage: Stage, level: Level | None) -> list[Step]:
    """Steps that compute reduction `stage` at `level`, None for before everything else, in vectors of columns."""
    steps: list[Step] = [ComputeAt(stage.name, level.parent, level.var) if level else ComputeRoot(stage.name)]
    column = next((loop for loop in stage.loops if loop.axis == kernel.contiguous), stage.loops[0])
    outer = [loop.name for loop in stage.loops if loop is not column]
    lanes = kernel.lanes(stage.bits)
    cascade, serial = _cascade(stage)
    steps += cascade
    if column.extent < lanes // 2:
        return steps
    for func, loops in serial.items():
        for update in (None, 0):
            vector = vectors(func, column.name, column.extent, lanes, update)
            steps += vector.steps
            if update is not None:
                steps.append(Reorder(func, (*vector.loops, *loops, *outer), update=0))
    return steps


def _cascade(stage: Stage) -> tuple[list[Step], dict[str, tuple[str, ...]]]:
    """Add up long columns in chunks of rows, and many chunks in blocks: a further accumulator for what one would
    round away. Returns the Funcs that result and the loops over rows of each one's update, innermost first."""
    names = tuple(loop.name for loop in stage.updates)
    rows = max(stage.updates, key=lambda loop: loop.extent)
    others = math.prod(loop.extent for loop in stage.updates if loop is not rows)
    if stage.operator not in ("sum", "prod") or rows.extent * others < 2 * RUNNING_TERMS:
        return [], {stage.name: names}
    total, blocks, chunks = stage.name, f"{stage.name}_blocks", f"{stage.name}_chunks"
    chunk, inner = f"{rows.name}_c", f"{rows.name}_i"
    size = max(1, RUNNING_TERMS // others)
    serial: dict[str, tuple[str, ...]] = {}
    steps: list[Step] = [Split(total, rows.name, chunk, inner, size, update=0)]
    count = -(-rows.extent // size)
    if count >= 2 * RUNNING_TERMS:
        block, member = f"{rows.name}_b", f"{rows.name}_m"
        steps += [
            Split(total, chunk, block, member, math.isqrt(count), update=0),
            RFactor(total, block, "block", blocks),
            ComputeAt(blocks, total, block),
        ]
        serial[total] = (block,)
        total, chunk = blocks, member
    steps += [RFactor(total, chunk, "chunk", chunks), ComputeAt(chunks, total, chunk)]
    return steps, serial | {total: (chunk,), chunks: tuple(inner if name == rows.name else name for name in names)}
