"""Elements of a table that are looked up and stored, with little else done to them: one after another.

A vector of 32-bit elements is looked up by an instruction that makes a load for each, and one of narrower elements is
put together from single ones, which takes an instruction of the shuffles' unit for each, as taking their indices out of
a vector does.
"""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.schedule.cpu.kernel import CpuKernel
from halide_backend.schedule.knobs import Knob
from halide_backend.schedule.steps import Step, Unroll, Vectorize

SINGLY = Knob("lookups.singly", (False, True), "load and store elements that are looked up one after another")

#: Most operations for each element, those on its index among them; more are worth vectors.
_WORK = 8


def is_single(kernel: CpuKernel) -> bool:
    """Whether the elements of the one output are looked up one after another, each at one number that is data."""
    output = kernel.parent
    alone = len(kernel.outputs) == 1 and kernel.transposition is None and not output.calls
    if not alone or output.looked_up.get(kernel.contiguous) != 1:
        return False
    why = f"{output.work} operations for each element, its load and those on its index among them"
    return kernel.choices.flag(SINGLY, output.work <= _WORK, why)


def one_by_one(kernel: CpuKernel, steps: Sequence[Step]) -> list[Step]:
    """The `steps` of the outputs, without the vectors of elements that are looked up one after another."""
    if not is_single(kernel):
        return list(steps)
    output = kernel.parent.name
    return [Unroll(output, each.var) if isinstance(each, Vectorize) and each.func == output else each for each in steps]
