"""Inductor's bucketize: how many of sorted boundaries lie below a value, by a binary search of as many steps as the
number of boundaries has bits.

Each step is a load at a position that depends on the step before, so that it is recorded like any other; the steps of
several values are under way together.
"""

from __future__ import annotations

from typing import Any

import sympy
import torch
from torch._inductor.virtualized import V

from halide_backend.capture.recorded import BodyRecorder, Recorded
from halide_backend.capture.sizes import extent, hint
from halide_backend.errors import Unsupported
from halide_backend.program.loop_program import Extent

#: Of a number that is known only when the kernel is called: it fits into int32.
_MOST_STEPS = 31

#: Steps of such a number that is typically as small, which becomes a guard: every other step would look at a place that
#: has been found (12 million floats among 255 boundaries on an H200: 200.4 us in 31 steps, Triton's 100.8 us).
_STEPS = (8, 12, 16, 20)


def record(
    recorder: BodyRecorder,
    value: Recorded,
    boundaries: tuple[str, sympy.Expr, sympy.Expr, sympy.Expr],
    start: Any,
    right: bool,
    sorter: tuple[str, sympy.Expr] | None,
    sorter_start: Any,
) -> Recorded:
    """The int32 number of boundaries before `value`, recorded by `recorder`, as eager finds it.

    `boundaries` are the name of a buffer, their number, the buffer's elements and their stride, `sorter` the name and
    the stride of the positions in order; `start` and `sorter_start` are where those of this value begin. A boundary
    that equals the value counts if `right`.

    Raises:
        Unsupported: a value's boundaries begin where data say, or are integers of fewer than 32 bits.
    """
    name, size, _, stride = boundaries
    dtype = V.graph.get_dtype(name)
    if dtype.itemsize < 4 and not dtype.is_floating_point:
        # Halide knows the least and the largest of them, and concludes nothing from it about the positions it searches.
        raise Unsupported("bucketize-of-small-integers", f"a search among boundaries of {dtype}")
    count = extent(size)
    if count == 0:
        return recorder.constant(0, torch.int32)
    first, first_place = _place(recorder, start), _place(recorder, sorter_start) if sorter else sympy.Integer(0)
    one, low = (recorder.constant(number, torch.int32) for number in (1, 0))
    high = recorder.index_expr(sympy.sympify(count), torch.int32)
    for _ in range(_steps(count)):
        middle = recorder.rshift(recorder.add(low, high), one)
        place = recorder.indirect_indexing(middle, count, check=False, wrap_neg=False)
        if sorter:
            named = recorder.load(sorter[0], first_place + sorter[1] * place)
            place = recorder.indirect_indexing(named, count, check=False, wrap_neg=False)
        boundary = recorder.load(name, first + stride * place)
        # Eager's comparison, and its sequence of places: what is unordered has the same result.
        before = recorder.logical_not((recorder.gt if right else recorder.ge)(boundary, value))
        beyond = recorder.logical_and(before, recorder.lt(low, high))
        low = recorder.where(beyond, recorder.add(middle, one), low)
        high = recorder.where(before, high, middle)
    return low


def _steps(count: Extent) -> int:
    """Bits of `count`, or more."""
    if isinstance(count, int):
        return count.bit_length()
    sizes = V.graph.sizevars
    # What is compiled ahead of time, or for a backward pass, has no more guards.
    if V.graph.aot_mode or sizes.shape_env.frozen:
        return _MOST_STEPS
    steps = next((each for each in _STEPS if hint(count) < 1 << each), _MOST_STEPS)
    fewer = steps < _MOST_STEPS and sizes.guard_or_false(sympy.Lt(count, 1 << steps))
    return steps if fewer else _MOST_STEPS


def _place(recorder: BodyRecorder, start: Any) -> sympy.Expr:
    """The element at which a value's boundaries begin, as an index.

    Raises:
        Unsupported: it is data.
    """
    if isinstance(start, int):
        return sympy.Integer(start)
    index = recorder.builder.index(start.position)
    if index is None:
        raise Unsupported(
            "bucketize-boundaries-by-data", "the place at which the boundaries begin is computed from data"
        )
    return index
