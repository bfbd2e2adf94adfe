"""How the last vector of a row ends: behind a guard, or shifted inwards."""

from __future__ import annotations

from halide_backend.schedule.cpu.kernel import CpuKernel, loop_along
from halide_backend.schedule.cpu.single_elements import is_single
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.stage import Stage
from halide_backend.schedule.steps import Split

#: Operations for each element of dense rows from which on the last vector of a row is shifted inwards: with 27 that was
#: faster than a guard, with 3 slower (docs/design/schedules/constants.md); of strided ones of known length, vectors at
#: most.
SHIFTED_WORK, SHIFTED_ROW = 16, 4

SHIFTED = Knob(
    "vectors.shifted", (False, True), "the last vector of a row begins earlier, and computes again what is before it"
)


def tail_of(kernel: CpuKernel, stage: Stage, axis: str, width: int) -> str:
    """The tail of the split of output `stage` along `axis` into pieces of `width` elements.

    In guarded iterations Halide loads each lane of a load with a stride, or a clamp, by itself, behind a branch.
    What is dense and quick is masked in little more time than the last lanes take twice, with memory from a cache.
    """
    loop, needed = loop_along(stage, axis), (stage, *kernel.behind([stage]))
    alone = len(kernel.outputs) == 1 and kernel.transposition is None and not (stage.overwrites or stage.replaces)
    singly = any(axis in each.strided for each in needed) and 2 * (loop.extent % width) >= width
    rest = loop.extent % width if kernel.reduces else singly and loop.extent <= SHIFTED_ROW * width
    if not alone or loop.extent < width or (loop.fixed and not rest) or is_single(kernel):
        return Split.tail
    if kernel.reduces:
        pays = loop.fixed or loop.extent >= 3 * width
        why = f"accumulators of {width} columns, none of them behind a guard"
    else:
        dense = all(each.contiguous.get(axis, 0) == each.traffic and not each.cases for each in needed)
        work = kernel.inlined_work(stage)
        pays = not dense or work >= SHIFTED_WORK
        why = f"{'dense' if dense else 'strided'} rows of {work} operations an element"
    return "ShiftInwards" if kernel.choices.flag(SHIFTED, pays, why) else Split.tail
