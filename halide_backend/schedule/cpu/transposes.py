"""Transposed operands, in square tiles: vectors of the operand's memory in, vectors of the output's memory out."""

from __future__ import annotations

import itertools
import math

from halide_backend.schedule.cpu.kernel import CpuKernel, Level, Nest, loop_along
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import (
    Bound,
    BoundExtent,
    ComputeAt,
    ComputeWith,
    Parallel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
)

TILES = Knob("transposes.tiles", (1, 2, 4), "tiles that are read one after another along the operand's memory")

#: Bytes of a cache line, and of a page: the places of an L1 cache repeat after one.
_LINE, _PAGE = 64, 4096

#: Lines that each place of an L1 cache holds, at least.
_WAYS = 8


def transposes(kernel: CpuKernel) -> Nest | None:
    """The outputs in tiles, if the mapping transposes operands."""
    turned = kernel.transposition
    if turned is None:
        return None
    column, across, side = turned.column, turned.across, turned.side
    parent = kernel.parent
    funcs = [stage for stage in kernel.graph.stages if stage.role is Role.STAGED_LOAD]
    rows, columns = _rectangle(kernel, turned, max(stage.bits for stage in funcs))
    # In the order of the parent's memory for all of them: their loops are fused.
    outer = [f"{across}_o" if loop.axis == across else loop.name for loop in parent.loops if loop.axis != column]
    steps: list[Step] = []
    for stage in kernel.outputs:
        steps += [
            Split(stage.name, column, f"{column}_o", f"{column}_i", columns),
            Split(stage.name, f"{column}_i", f"{column}_t", f"{column}_v", side),
            Split(stage.name, across, f"{across}_o", f"{across}_i", rows),
            Split(stage.name, f"{across}_i", f"{across}_t", f"{across}_u", side),
            Reorder(
                stage.name,
                (f"{column}_v", f"{across}_u", f"{across}_t", f"{column}_t", f"{column}_o", *outer),
            ),
            Vectorize(stage.name, f"{column}_v"),
        ]
        if turned.unrolled:
            steps.append(Unroll(stage.name, f"{across}_u"))
        if kernel.parallel:
            steps.append(Parallel(stage.name, _outermost(kernel, turned, rows)))
    level = Level(parent.name, f"{across}_t")
    steps += [ComputeWith(stage.name, parent.name, level.var) for stage in kernel.outputs if stage is not parent]
    for stage in funcs:
        # One tile is needed at a time, which Halide cannot prove where a tail is guarded.
        steps += [
            ComputeAt(stage.name, level.parent, level.var),
            Bound(stage.name, "i", 0, side),
            Bound(stage.name, "j", 0, side),
            BoundExtent(stage.name, column, 1),
            BoundExtent(stage.name, across, 1),
            Vectorize(stage.name, "i"),
            Unroll(stage.name, "j"),
        ]
    # Reductions, and what they share with the outputs, are computed for all tiles that lie side by side along `column`.
    return Nest(tuple(steps), Level(parent.name, f"{across}_o") if turned.results else level)


def _whole(kernel: CpuKernel, axis: str, side: int) -> bool:
    """Whether `axis` is typically one of whole tiles, which is read without a guard."""
    loop = loop_along(kernel.parent, axis)
    return loop.extent % side == 0


def _rectangle(kernel: CpuKernel, turned: Transposition, bits: int) -> tuple[int, int]:
    """Points along `across` and along `column` that are written one tile after another, of elements of `bits` bits."""
    side = turned.side
    line, pair = min(4, _LINE * 8 // (side * bits)), 2
    # Rows that lie large powers of two apart share few places of a cache, which hold 8 or 12 lines each. Where tails
    # are guarded, Halide makes a copy without guards of what has several tiles.
    inside = list(itertools.takewhile(lambda loop: loop.axis != turned.across, kernel.parent.loops))
    stride = math.prod(loop.extent for loop in inside) * bits // 8
    crowded = pair * side * math.gcd(stride, _PAGE) > _WAYS * _PAGE
    if crowded and all(loop.fixed for loop in inside):
        pair = kernel.device.lines_fetched
    why = "adjacent lines of the operand, unless the rows that are written share places of a cache"
    tiles = kernel.choices.number(TILES, max(line, pair), why)
    if all(_whole(kernel, axis, side) for axis in (turned.column, turned.across)):
        # Of the operand, no more rows than a tile has: where they lie a power of two apart they share few places of a
        # cache. A loop of whole tiles is one of whole rectangles, too.
        return side * math.gcd(loop_along(kernel.parent, turned.across).extent // side, tiles), side
    # Where tails are guarded, Halide also needs the loop along `column` inside the parallel one, to make a copy without
    # guards.
    rows, columns = (
        side * math.gcd(loop_along(kernel.parent, axis).extent // side, tiles)
        if _whole(kernel, axis, side)
        else side * tiles
        for axis in (turned.across, turned.column)
    )
    return rows, columns


def _outermost(kernel: CpuKernel, turned: Transposition, rows: int) -> str:
    """The outermost long loop, whose steps the threads share; that along `across` has `rows` points in each."""
    loops = {
        f"{loop.name}_o" if loop.axis == turned.across else loop.name: -(-loop.extent // rows)
        if loop.axis == turned.across
        else loop.extent
        for loop in reversed(kernel.parent.loops)
        if loop.axis != turned.column
    }
    return next((name for name, extent in loops.items() if extent >= 8), max(loops, key=lambda name: loops[name]))
