"""Transposed operands, in square tiles: vectors of the operand's memory in, vectors of the output's memory out."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from halide_backend.schedule.cpu.accumulators import HELD
from halide_backend.schedule.cpu.kernel import MANY_REGISTERS, CpuKernel, Level, Nest, has, loop_along, vectors
from halide_backend.schedule.cpu.turned_operands import TASK_TILES, TASKS, tile_in_vectors
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.mapping.transposition import PAGE, Transposition
from halide_backend.schedule.stage import Loop, Role, Stage
from halide_backend.schedule.steps import (
    ComputeAt,
    ComputeWith,
    NeverPartition,
    Parallel,
    Reorder,
    Split,
    Step,
    Unroll,
    Vectorize,
)

TILES = Knob("transposes.tiles", (1, 2, 4), "tiles that are read one after another along the operand's memory")

LINES = Knob("transposes.lines", (False, True), "store rows of as many tiles together as fill a line of memory")

#: Bytes of a cache line.
_LINE = 64

#: Lines that each place of an L1 cache holds, at least.
_WAYS = 8

#: Tiles of a row of the output up to which the loop along the operand's memory is the inner one, if it has more.
_SHORT = 4


def transposes(kernel: CpuKernel) -> Nest | None:
    """The outputs in tiles, if the mapping transposes operands."""
    turned = kernel.transposition
    if turned is None or turned.reduced:
        return None
    column, across, side = turned.column, turned.across, turned.side
    parent = kernel.parent
    funcs = [stage for stage in kernel.graph.stages if stage.role is Role.STAGED_LOAD]
    loops = _loops(kernel, turned, max(stage.bits for stage in funcs))
    steps: list[Step] = []
    tiled = [stage for stage in kernel.outputs if has(stage, column)]
    for stage in tiled:
        steps.append(Split(stage.name, column, f"{column}_o", f"{column}_v", side))
        line = (f"{column}_p",) if loops.beside > 1 else ()
        for name in line:
            steps += [Split(stage.name, f"{column}_o", f"{column}_o", name, loops.beside), Unroll(stage.name, name)]
        if loops.tiles > 1:
            steps += [
                Split(stage.name, across, f"{across}_o", f"{across}_i", side * loops.tiles),
                Split(stage.name, f"{across}_i", f"{across}_t", f"{across}_u", side),
            ]
        else:
            steps.append(Split(stage.name, across, f"{across}_o", f"{across}_u", side))
        steps += [
            Reorder(stage.name, (f"{column}_v", *line, f"{across}_u", *loops.around)),
            Vectorize(stage.name, f"{column}_v"),
        ]
        if turned.unrolled:
            steps.append(Unroll(stage.name, f"{across}_u"))
        if kernel.parallel:
            steps.append(Parallel(stage.name, loops.shared))
    level = Level(parent.name, loops.around[0])
    steps += [ComputeWith(stage.name, parent.name, level.var) for stage in tiled if stage is not parent]
    single = _single(kernel, turned)
    for stage in funcs:
        steps += [
            ComputeAt(stage.name, level.parent, level.var),
            *tile_in_vectors(stage, side, *((column,) if loops.beside == 1 else ()), across, *single),
        ]
    if not turned.results:
        return Nest(tuple(steps), level)
    # Reductions, and what they share with the outputs, are computed for all tiles that lie side by side along `column`.
    # In a second copy of that loop accumulators would have the stack memory of the first one's tiles, and LLVM moves no
    # array to registers of which any place is computed.
    steps += [step for stage in kernel.outputs if stage not in tiled for step in _of_rows(kernel, stage, turned, loops)]
    steps += [NeverPartition(stage.name, f"{across}_o") for stage in kernel.outputs]
    return Nest(tuple(steps), Level(parent.name, f"{across}_o"), room={across: side * loops.tiles}, single=single)


def _single(kernel: CpuKernel, turned: Transposition) -> tuple[str, ...]:
    """Axes of computed length around the tiles of several outputs: Halide does not see that each step needs one point
    of them, and would allocate every tile, and each row of it."""
    axes = (loop for loop in kernel.parent.loops if loop.axis not in (turned.column, turned.across) and not loop.fixed)
    return tuple(loop.axis for loop in axes) if len(kernel.outputs) > 1 else ()


def _of_rows(kernel: CpuKernel, stage: Stage, turned: Transposition, loops: _Loops) -> list[Step]:
    """Steps of output `stage` with an element for each row of the tiles, beside these."""
    outer, inner = f"{turned.across}_o", f"{turned.across}_i"
    several = turned.side * loops.tiles
    vector = vectors(stage.name, inner, several, kernel.lanes(stage.bits))
    around = loops.around[loops.around.index(outer) :]
    steps = [Split(stage.name, turned.across, outer, inner, several), *vector.steps]
    steps.append(Reorder(stage.name, (*vector.loops, *around)))
    if kernel.parallel:
        steps.append(Parallel(stage.name, loops.shared))
    return [*steps, ComputeWith(stage.name, kernel.parent.name, outer)]


@dataclass(frozen=True)
class _Loops:
    """`tiles` along `across` are one step of the loop `across`_o, and `beside` along `column` one of `column`_o: their
    rows are stored together. `around` are the loops around a tile, innermost first, of which threads share the steps of
    `shared`."""

    tiles: int
    around: tuple[str, ...]
    shared: str
    beside: int = 1


def _loops(kernel: CpuKernel, turned: Transposition, bits: int) -> _Loops:
    """The loops over tiles, in which the widest element that is turned has `bits` bits."""
    column, across, side = turned.column, turned.across, turned.side
    # In the order of the parent's memory for all outputs: their loops are fused.
    loops = [loop for loop in kernel.parent.loops if loop.axis != column]
    outer = [f"{across}_o" if loop.axis == across else loop.name for loop in loops]
    along, lines = (loop_along(kernel.parent, axis) for axis in (column, across))
    whole = lines.fixed and lines.extent % side == 0
    count = -(-lines.extent // side)
    if turned.results:
        tiles = min(count, kernel.choices.number(TILES, HELD, "columns whose accumulators stay in registers"))
    elif whole:
        line, pair = min(4, _LINE * 8 // (side * bits)), 2
        if kernel.device.vector_registers < MANY_REGISTERS:
            # Of 8192 x 128 float32 one tile at a time was 2.4 times as fast as C++, two 2.0 times; of 1200 x 2048 1.7
            # and 2.0 times (Zen 3, in turns by a script).
            tiles = line if turned.apart % PAGE == 0 else 1
            why = "tiles that are parts of a line, all of it where the operand's lines share places of a cache"
        else:
            # Rows that lie large powers of two apart share few places of a cache, which hold 8 or 12 lines each.
            if pair * side * math.gcd(_stride(kernel, across, bits), PAGE) > _WAYS * PAGE:
                pair = kernel.device.lines_fetched
            tiles = max(line, pair)
            why = "adjacent lines of the operand, unless the rows that are written share places of a cache"
        tiles = kernel.choices.number(TILES, tiles, why)
    else:
        # Halide makes a copy without guards of the steps of a serial loop that need none: of a loop that threads share
        # there is one within its iterations. Inside it lie the longer rows of tiles, whose addresses are computed once.
        shared, place, tiles = _outermost(kernel, turned, 1), outer.index(f"{across}_o"), 1
        if kernel.parallel and shared == f"{across}_o" and count > 1:
            tiles = max(2, min(TASK_TILES, count // TASKS))
            outer.insert(place, f"{across}_t")
        around, longer = [f"{column}_o", *outer], tiles if tiles > 1 else count
        if place == 0 and -(-along.extent // side) <= min(_SHORT, longer - 1):
            around[:2] = around[1::-1]
        return _Loops(tiles, tuple(around), shared)
    # A tile beyond the end of an axis of whole tiles would be read without a guard.
    tiles = math.gcd(count, tiles) if whole else tiles
    around = ([f"{across}_t"] if tiles > 1 else []) + [f"{column}_o", *outer]
    return _Loops(tiles, tuple(around), _outermost(kernel, turned, tiles), _beside(kernel, turned, along, bits))


def _beside(kernel: CpuKernel, turned: Transposition, along: Loop, bits: int) -> int:
    """Tiles whose rows are stored together, so that they fill lines of memory: a line of which a part is stored may be
    gone before the rest of it is, where rows share few places of a cache."""
    line = max(1, _LINE * 8 // (turned.side * bits))
    whole = along.fixed and along.extent % (turned.side * line) == 0
    if line == 1 or not whole or turned.results or not turned.unrolled:
        return 1
    # Two tiles of 8 x 8 float32 take all of 16 registers: 64 x 16384 of them took 2.5 times as long as one at a time.
    room = kernel.device.vector_registers >= max(MANY_REGISTERS, line * turned.side * len(kernel.outputs))
    copied = room and all(kernel.inlined_work(stage) <= 1 for stage in kernel.outputs)
    # Of many lines that are read and share a place, too, a part would be gone before the next tile reads it.
    read = turned.apart % PAGE != 0 or along.extent == turned.side * line
    together = copied and read and _stride(kernel, turned.across, bits) % PAGE == 0
    why = "rows that are written share one place of a cache; two tiles fit into registers, if nothing else does"
    return line if kernel.choices.flag(LINES, together, why) else 1


def _stride(kernel: CpuKernel, across: str, bits: int) -> int:
    """Bytes from one row that is written to the next one along axis `across`."""
    inside = itertools.takewhile(lambda loop: loop.axis != across, kernel.parent.loops)
    return math.prod(loop.extent for loop in inside) * bits // 8


def _outermost(kernel: CpuKernel, turned: Transposition, tiles: int) -> str:
    """The outermost long loop, whose steps the threads share; that along `across` has `tiles` tiles in each."""
    loops = {
        f"{loop.name}_o" if loop.axis == turned.across else loop.name: -(-loop.extent // (turned.side * tiles))
        if loop.axis == turned.across
        else loop.extent
        for loop in reversed(kernel.parent.loops)
        if loop.axis != turned.column
    }
    return next((name for name, extent in loops.items() if extent >= 8), max(loops, key=lambda name: loops[name]))
