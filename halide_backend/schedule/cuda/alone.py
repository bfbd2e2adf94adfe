"""Outputs of CUDA threads that do not cooperate: each computes a point of the outer axes, or a chunk of them."""

from __future__ import annotations

import math
from dataclasses import replace

from halide_backend.schedule.cuda.grid import plane
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, are_fixed, fuse, is_element, unroll_chunk
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import (
    ComputeWith,
    Fuse,
    GpuBlocks,
    GpuThreads,
    NeverPartition,
    Reorder,
    Split,
    Step,
    Unroll,
)

#: The loops that all outputs have: of blocks, of their threads, and of the steps of a thread if it has several, or of
#: its points across.
BLOCK, THREAD, PART, POINT = "block", "thread", "part", "point"

#: Steps of a thread along an axis of unknown length.
_ROW_PARTS = 4


def give_to_threads(steps: list[Step], kernel: TiledKernel, stage: Stage, threads: int, parts: int) -> None:
    """Map the row of output `stage` to blocks of `threads` threads, each of which does `parts` iterations."""
    order = unroll_chunk(steps, stage.name, stage.loops)
    outer = sorted(kernel.outer_loops(stage), key=lambda loop: loop.axis != kernel.tiling.adjacent)
    serial = [loop.name for loop in along_reduced(kernel, stage)]
    if kernel.tiling.across:
        points, outer = _split_across(steps, kernel, stage, outer)
        serial = [*points, *serial]
    steps.append(Reorder(stage.name, (*order, *serial, *(loop.name for loop in outer))))
    if len(outer) > 1 and len(kernel.outputs) > 1:
        steps += plane(stage.name, outer, [*order, *serial], threads)
        return
    if kernel.tiling.across and len(outer) > 1 and not outer[0].fixed and outer[0].extent >= threads:
        _give_rows(steps, stage, outer, [*order, *serial], threads)
        return
    fused = fuse(steps, stage.name, outer, "i")
    if parts == 1:
        steps += [
            Split(stage.name, fused, BLOCK, THREAD, threads),
            # LLVM would merge the two versions again, and break up vectors that are loaded in both.
            NeverPartition(stage.name, BLOCK),
            GpuThreads(stage.name, (THREAD,)),
            GpuBlocks(stage.name, (BLOCK,)),
        ]
        return
    steps += [
        Split(stage.name, fused, BLOCK, "within", parts * threads),
        Split(stage.name, "within", PART, THREAD, threads),
        Reorder(stage.name, (*order, *serial, PART, THREAD, BLOCK)),
        Unroll(stage.name, PART),
        GpuThreads(stage.name, (THREAD,)),
        GpuBlocks(stage.name, (BLOCK,)),
    ]
    whole = are_fixed(outer) and math.prod(loop.extent for loop in outer) % (parts * threads) == 0
    if whole and kernel.has(Role.STAGED_LOAD):
        steps.append(NeverPartition(stage.name, BLOCK))


def _give_rows(steps: list[Step], stage: Stage, outer: list[Loop], serial: list[str], threads: int) -> None:
    """Map the first of the loops `outer` to blocks of `threads` threads, which are fused with the others: where a block
    is takes a division by a number that nobody knows, once for all steps of a thread (the channels of 2600 x 65 x 59
    bytes as floats, sizes dynamic, on an H200: 60.5 us with a division for each pixel, of 47 us without any)."""
    first, *rest = outer
    parts = min(_ROW_PARTS, max(1, first.extent // threads))
    steps += [
        Split(stage.name, first.name, BLOCK, "within", parts * threads),
        Split(stage.name, "within", PART, THREAD, threads),
        Reorder(stage.name, (*serial, PART, THREAD, BLOCK, *(loop.name for loop in rest))),
        Unroll(stage.name, PART),
    ]
    block = BLOCK
    for number, loop in enumerate(rest):
        steps.append(Fuse(stage.name, block, loop.name, f"{BLOCK}{number}"))
        block = f"{BLOCK}{number}"
    steps += [GpuThreads(stage.name, (THREAD,)), GpuBlocks(stage.name, (block,))]


def _split_across(
    steps: list[Step], kernel: TiledKernel, stage: Stage, outer: list[Loop]
) -> tuple[list[str], list[Loop]]:
    """Give each thread several points along one of the loops `outer`; its own loops, and those that are left."""
    tiling = kernel.tiling
    (loop,) = (loop for loop in outer if loop.axis == tiling.across)
    rest = replace(loop, name=f"{loop.name}o", extent=loop.extent // tiling.lines)
    steps += [Split(stage.name, loop.name, rest.name, POINT, tiling.lines), Unroll(stage.name, POINT)]
    if rest.extent == 1 and loop.fixed and len(outer) > 1:
        # Fused with loops of unknown lengths, it would cost a division by their number.
        return [POINT, rest.name], [each for each in outer if each is not loop]
    return [POINT], [rest if each is loop else each for each in outer]


def compute_together(steps: list[Step], kernel: TiledKernel) -> None:
    """Let a thread compute its part of every output."""
    parent, *others = kernel.outputs
    steps += [ComputeWith(stage.name, parent.name, THREAD) for stage in others]


def along_reduced(kernel: TiledKernel, stage: Stage) -> list[Loop]:
    """The loops of an output along what the kernel reduces."""
    outer = kernel.outer_loops(stage)
    return [loop for loop in stage.loops if loop not in outer and not is_element(loop)]
