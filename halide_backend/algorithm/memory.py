"""Tensors as Halide sees them: flat inputs, outputs with the strides of the tensor."""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from halide_backend.algorithm.arguments import Input, Output
from halide_backend.algorithm.element_types import STORAGE


def source(argument: Input) -> hl.ImageParam:
    """The flat input: every load computes its own element index, so no bounds need to be inferred."""
    param = hl.ImageParam(STORAGE[argument.dtype], 1, argument.name)
    param.dim(0).set_bounds(0, argument.extent)
    return param


def target(func: hl.Func, argument: Output, variables: Sequence[hl.Var]) -> None:
    """Give output `func` the extents and strides of its tensor, dimension by dimension, innermost first."""
    buffer = func.output_buffer()
    for dimension, ((extent, stride), variable) in enumerate(zip(argument.dims, variables)):
        func.bound(variable, 0, extent)
        buffer.dim(dimension).set_bounds(0, extent).set_stride(stride)
