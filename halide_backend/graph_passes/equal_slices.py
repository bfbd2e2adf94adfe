"""Slices whose sizes the graph's guards say are equal, such as a row's elements at even and at odd places, or its
halves: their sizes are written alike.

Of n elements (n + 1)//2 are at even places and n//2 at odd ones, or in both halves. What stacks, adds or multiplies the
two has a guard that these are equal, but Inductor takes loops over them for different ones and does not fuse them.
"""

from __future__ import annotations

import functools
import itertools
import sys
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv

from halide_backend.graph_passes.own_lowerings import prefer


@functools.cache
def write_equal_sizes_alike() -> None:
    """Let Inductor lower slices with a step, and parts of a row, so, for graphs of this backend."""
    prefer(torch.ops.aten.slice.Tensor, _slice)
    prefer(torch.ops.aten.split.Tensor, _split)


def _slice(
    x: Any, dim: int = 0, start: Any = 0, end: Any = sys.maxsize, step: Any = 1, clamp: bool = True
) -> ir.TensorBox | None:
    """Every `step`-th element, from one of the first `step` to the end; None if no other size is known to be equal."""
    if not isinstance(start, int) or not isinstance(step, int) or not 0 <= start < step or end != sys.maxsize:
        return None
    size, missing = sympy.sympify(x.get_size()[dim]), step - 1 - start
    least = missing if size.is_Integer else _least(size, step, missing)
    if least == missing:
        return None
    end = start + step * FloorDiv(size + least, step) - (step - 1)
    return ir.TensorBox(ir.SliceView.create(x.data, dim, start, end, step, clamp=False))


def _split(x: Any, part: Any, dim: int = 0) -> list[ir.TensorBox] | None:
    """Parts of `part` elements each; None if nobody knows that the last one has as many, or all sizes are known."""
    sizes, part = x.get_size(), sympy.sympify(part)
    size = sympy.sympify(sizes[dim])
    if part.is_Integer or not V.graph.sizevars.statically_known_leq(1, part):
        return None
    count = V.graph.sizevars.guard_int(FloorDiv(size + part - 1, part))
    if not V.graph.sizevars.statically_known_equals(size - (count - 1) * part, part):
        return None
    ends = [number * part for number in range(count + 1)]
    views = (ir.SliceView.create(x.data, dim % len(sizes), *each, 1, clamp=False) for each in itertools.pairwise(ends))
    return [ir.TensorBox(view) for view in views]


def _least(size: sympy.Expr, step: int, missing: int) -> int:
    """The least number that can stand for `missing` in (size + missing)//step: no guard says what follows from two."""

    def count(missing: int) -> sympy.Expr:
        return FloorDiv(size + missing, step)

    equals = V.graph.sizevars.statically_known_equals
    less = next((less for less in range(missing) if equals(count(missing), count(less))), missing)
    return less if less == missing else _least(size, step, less)
