"""Lines of memory of which a pointwise kernel stores the elements in rows of their own: all before the next lines. And
those of which it would store parts, one vector after another."""

from __future__ import annotations

import math

from halide_backend.schedule.cpu.kernel import CpuKernel, loop_along, same_loops
from halide_backend.schedule.cpu.tails import tail_of
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Loop
from halide_backend.schedule.steps import Split

LINES = Knob("column_blocks.lines", (False, True), "all rows of a block of columns before the next block")

#: Elements side by side of which each is read for a row of its own, and as many rows computed together: half a line
#: of float32.
_PICKED = 8

#: Bytes of a line of a cache.
_LINE = 64

#: Most vectors, and vectors of all results together, that are stored at once to fill lines.
_FILLS, _FILLS_RESULTS = 4, 16


def picked(kernel: CpuKernel, column: str, others: list[str]) -> str:
    """The axis of a few elements that lie side by side in what a pointwise kernel reads, where its results have them in
    rows of their own: each line would be read again for each of these rows."""
    alike = all(same_loops(stage, kernel.parent) for stage in kernel.outputs)
    if kernel.reduces or kernel.transposition is not None or not alike:
        return ""
    stages = (*kernel.outputs, *kernel.behind(kernel.outputs))
    along = {axis: loop_along(kernel.parent, axis) for axis in others}
    short = [axis for axis, loop in along.items() if loop.fixed and 1 < loop.extent <= _PICKED]
    lines = {axis for stage in stages for axis, _ in stage.runs}
    # Of windows that overlap, too, unless their last vector is loaded element by element.
    loop, lanes = loop_along(kernel.parent, column), kernel.lanes(kernel.parent.bits)
    if loop.fixed and (loop.extent % lanes == 0 or tail_of(kernel, kernel.parent, column, lanes) != Split.tail):
        lines |= {axis for stage in stages for axis in stage.contiguous if column in stage.strided}
    return next((axis for axis in short if axis in lines), "")


def lines_beside(kernel: CpuKernel, column: str, others: list[str]) -> list[str]:
    """The axes along which lie the elements of lines of memory that a pointwise kernel reads, of which each element of
    a vector along `column` has its own: a block of columns takes them from the L1 cache."""
    alike = all(same_loops(stage, kernel.parent) for stage in kernel.outputs)
    if kernel.reduces or kernel.transposition is not None or not alike:
        return []
    stages = (*kernel.outputs, *kernel.behind(kernel.outputs))
    found = {axis for stage in stages for line, axis in stage.lines if line == column}
    axes = [axis for axis in others if axis in found]
    why = "elements of lines, of which each element of a vector has its own"
    return axes if axes and kernel.choices.flag(LINES, True, why) else []


def columns_of_lines(kernel: CpuKernel, beside: list[str], lanes: int) -> int:
    """Columns of a block whose lines, along `beside`, half of the L1 cache holds."""
    elements = math.prod(loop_along(kernel.parent, axis).extent for axis in beside)
    columns = kernel.device.l1_bytes // 2 // max(_LINE, elements * kernel.parent.bits // 8)
    return max(lanes, columns // lanes * lanes)


def vectors_of_lines(kernel: CpuKernel, along: Loop, block: int, lanes: int) -> int:
    """Vectors of a block that are computed together, so that a result which is narrower than another one is stored in
    whole lines, as the other one is: a line that is stored in parts is read from memory before."""
    bits = {stage.bits for stage in kernel.outputs}
    whole = along.fixed and (along.extent % block == 0 or along.extent <= block)
    if kernel.reduces or len(bits) < 2 or not whole:
        return 1
    count = min(_FILLS, _LINE * 8 // (lanes * min(bits)), _FILLS_RESULTS // len(kernel.outputs))
    return next((n for n in (4, 2) if n <= count and block % (n * lanes) == 0), 1)
