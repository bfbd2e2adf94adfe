"""Tensors as Halide sees them: flat inputs, outputs with the strides of the tensor."""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from halide_backend.kernel_library.arguments import Input, Size
from halide_backend.kernel_library.element_types import STORAGE


def source(argument: Input) -> hl.ImageParam:
    """The flat input: every load computes its own element index, so no bounds need to be inferred."""
    return hl.ImageParam(STORAGE[argument.dtype], 1, argument.name)


def size(argument: Size) -> hl.Param:
    """A number that is known only when the kernel is called."""
    return hl.Param(hl.Int(argument.bits), argument.name)


def target(
    func: hl.Func,
    variables: Sequence[hl.Var],
    dims: Sequence[tuple[hl.Expr | int, hl.Expr | int]],
) -> None:
    """Give output `func` the (extent, stride) pairs of its tensor, in elements, innermost dimension first.

    With these constraints the kernel never looks at the sizes in the buffer that it is called with.
    """
    buffer = func.output_buffer()
    for dimension, ((extent, stride), variable) in enumerate(zip(dims, variables)):
        func.bound(variable, 0, extent)
        buffer.dim(dimension).set_bounds(0, extent).set_stride(stride)
