"""Outputs of CUDA threads that cooperate: an outer point of the kernel for each thread group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from halide_backend.schedule.cuda.grid import blocks, grid, innermost
from halide_backend.schedule.cuda.tiled_kernel import TiledKernel, are_fixed, fuse
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop, LoopKind, Role, Stage
from halide_backend.schedule.steps import (
    Bound,
    ComputeAt,
    ComputeWith,
    GpuThreads,
    NeverPartition,
    Reorder,
    Split,
    Step,
    Unroll,
)
from halide_backend.schedule.tiling import STEP, THREAD, WARP

#: Warps of a block where a warp has a line, or several.
_WARPS = 4


@dataclass(frozen=True)
class Levels:
    """Loops of the output that all others follow: of a block, and of one step of a thread (or of the thread)."""

    block: str
    step: str


def levels(kernel: TiledKernel, groups: int) -> Levels:
    """The loops of a kernel with `groups` thread groups in a block."""
    outer = kernel.outer_loops(kernel.parent)
    innermost_outer = innermost(outer).name if len(outer) == 1 or are_fixed(outer) else "i"
    step = STEP if kernel.runs_along_line(kernel.parent) else THREAD
    return Levels("block" if groups > 1 else innermost_outer, step)


def groups_per_block(kernel: TiledKernel, knob: Knob) -> int:
    """Thread groups of a block: one, or if they are part of a warp several, in as many warps as `knob` says."""
    tiling = kernel.tiling
    if tiling.threads > WARP or tiling.warps > 1:
        return 1
    return kernel.choices.number(knob, _WARPS, "1 to 8 warps were equally fast") * WARP // tiling.threads


def fused_outer_loops(steps: list[Step], kernel: TiledKernel, stage: Stage) -> list[Loop]:
    """The outer loops of an output; those of dynamic extent are fused."""
    outer = kernel.outer_loops(stage)
    if are_fixed(outer):
        return outer
    points = math.prod(loop.extent for loop in outer)
    return [Loop(fuse(steps, stage.name, outer, "i"), points, "i", fixed=False)]


def map_to_blocks(
    steps: list[Step], kernel: TiledKernel, stage: Stage, outer: Sequence[Loop], order: Sequence[str], groups: int = 1
) -> None:
    """Map the `outer` loops to blocks of `groups` thread groups; `order` are the loops of a thread, innermost first."""
    own = [loop.name for loop in stage.loops if loop.kind in (LoopKind.THREAD, LoopKind.WARP)]
    threads = tuple(own or [THREAD])
    steps.append(Reorder(stage.name, (*order, *threads, *(loop.name for loop in outer))))
    if groups == 1:
        steps += [GpuThreads(stage.name, threads), *grid(stage.name, outer)]
        return
    first, *rest = outer
    width = _width(outer, groups)
    steps.append(Split(stage.name, first.name, "block", "y", width))
    if width < groups:
        # Of a short axis the lines end before a block does: it has those of several points of the next one.
        second, *rest = rest
        names = (*order, *threads, "y", "y2", "block", "block2", *(loop.name for loop in rest))
        steps += [Split(stage.name, second.name, "block2", "y2", groups // width), Reorder(stage.name, names)]
        rest = [blocks(second, "block2", groups // width), *rest]
    steps.append(GpuThreads(stage.name, (*threads, "y") if width == groups else (*threads, "y", "y2")))
    if not first.fixed or kernel.has(Role.SCAN):
        steps.append(NeverPartition(stage.name, "block"))
    steps += grid(stage.name, [blocks(first, "block", width), *rest])


def _width(outer: Sequence[Loop], groups: int) -> int:
    """How many of a block's `groups` lie along the first of the `outer` loops: all, or the largest power of two that
    divides a shorter one, which the lines of a warp do."""
    first = outer[0]
    short = len(outer) > 1 and are_fixed(outer) and first.extent < groups
    return math.gcd(first.extent, groups) if short else groups


def compute_together(steps: list[Step], kernel: TiledKernel) -> None:
    """Let a thread compute its part of every output, step by step where both run along the line."""
    parent, *others = kernel.outputs
    for stage in others:
        same = kernel.runs_along_line(stage) and kernel.runs_along_line(parent)
        steps.append(ComputeWith(stage.name, parent.name, STEP if same else THREAD))


def pack(stage: Stage, parent: Stage, step: str) -> tuple[Step, ...]:
    """Pack the words of a chunk where they are stored."""
    return ComputeAt(stage.name, parent.name, step), Unroll(stage.name, stage.loops[0].name)


def hold(stage: Stage) -> list[Step]:
    """Keep what a thread loads in all its iterations in registers."""
    # Where a guard tells that some threads have fewer steps, their number would not be a constant.
    found: list[Step] = []
    for loop in (loop for loop in stage.loops if loop.kind is LoopKind.STEP):
        found += [Bound(stage.name, loop.name, 0, loop.extent), Unroll(stage.name, loop.name)]
    return found
