"""Whether two schedules of one program have the same results, but for what another order of additions explains."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from halide_backend.program.loop_program import LoopProgram, Reduction, Scan
from halide_backend.tune.typical_sizes import number

#: Of n additions in another order, rounding errors of which are independent, the results differ by about the square
#: root of n units of their last places; eight such standard deviations on either side.
_DEVIATIONS = 16


def disagreement(program: LoopProgram, got: Mapping[int, Tensor], wanted: Mapping[int, Tensor]) -> str:
    """What differs between memory that two kernels have written; "" if nothing does.

    Integers, bools and the memory between elements have to be equal bit by bit. Floats may differ by
    `_DEVIATIONS * epsilon * sqrt(terms) * (|x| + rms)`, with the epsilon of the narrowest type that is computed in
    (float32 if it is narrower), `terms` that one result is summed of at most, and the root mean square of all elements
    of the tensor; and by one unit in the last place of a result that is narrower than that.
    """
    terms = _terms(program)
    narrowest = any(value.dtype in ("float32", "float16", "bfloat16") for value in program.values)
    epsilon = torch.finfo(torch.float32 if narrowest else torch.float64).eps
    for buffer in program.outputs:
        mine, theirs = got[buffer.memory], wanted[buffer.memory]
        if bool((_bits(mine) == _bits(theirs)).all()):
            continue
        if not mine.is_floating_point():
            wrong = mine != theirs
        else:
            wrong = ~_close(mine.double(), theirs.double(), epsilon * math.sqrt(terms), torch.finfo(mine.dtype).eps)
        if bool(wrong.any()):
            place = int(wrong.nonzero()[0])
            return (
                f"{buffer.name}: {int(wrong.sum())} of {wrong.numel()} elements differ from the rules' kernel, "
                f"the first at {place}: {mine[place].item()!r} instead of {theirs[place].item()!r}"
            )
    return ""


def _close(mine: Tensor, theirs: Tensor, error: float, unit: float) -> Tensor:
    finite = theirs[torch.isfinite(theirs)]
    scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    bound = _DEVIATIONS * error * (theirs.abs() + scale) + unit * theirs.abs()
    alike = (mine == theirs) | (mine.isnan() & theirs.isnan())
    # The bound of an infinite result is infinite, too.
    return alike | (theirs.isfinite() & ((mine - theirs).abs() <= bound))


def _terms(program: LoopProgram) -> int:
    """Terms of the longest sum."""
    terms = 1
    for value in program.values:
        if isinstance(value.attribute, Reduction | Scan):
            terms = max(terms, math.prod(number(axis.extent, program) for axis in value.attribute.axes))
    for store in program.stores:
        if store.mode is not None:
            terms = max(terms, math.prod(number(axis.extent, program) for axis in store.nest.axes))
    return terms


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)
