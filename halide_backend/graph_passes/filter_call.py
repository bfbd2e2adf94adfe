"""The call of a convolution's kernel in Inductor's IR."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._inductor.ir import ExternKernelOut, FixedLayout

from halide_backend.device_type import CPU
from halide_backend.graph_passes.unread_constants import leave_out_unread
from halide_backend.pipeline import build_ahead


class FilterCall(ExternKernelOut):
    """The kernel of `text`, named by its `kind`, for `operands`: pictures, weights, a number for each channel of the
    result, and what is added to it, if anything.

    `dims` are (extent, stride) pairs of the result, innermost, the channels, first. A constant that held the weights,
    `replaced`, if there was one, is not needed.
    """

    def __init__(
        self, kind: str, text: str, operands: Sequence[Any], dims: Sequence[tuple[int, int]], replaced: str | None
    ) -> None:
        picture, (channel, *picture_dims, batch) = operands[0], dims
        order = (batch, channel, *reversed(picture_dims))
        size, stride = ([each[kind] for each in order] for kind in range(2))
        super().__init__(
            FixedLayout(picture.get_device(), picture.get_dtype(), size, stride), operands, python_kernel_name=kind
        )
        self._kind = kind
        self._text = text
        self._replaced = replaced
        # The workers have nothing to do yet: the first fused kernels come when the whole graph is lowered.
        build_ahead(text, kind)

    def codegen(self, wrapper: Any) -> None:
        arity = len(self.inputs) + 1
        pipelines = f"[\n    (r'''\n{self._text}''', {tuple(range(arity))}),\n]"
        body = f"arity={arity}, device={CPU.name!r}, pipelines={pipelines})"
        name = wrapper.src_to_kernel.get(body)
        if name is None:
            name = wrapper.src_to_kernel[body] = f"{self._kind}_{wrapper.next_kernel_suffix()}"
            wrapper.add_import_once("from halide_backend.loading import load_kernel")
            wrapper.define_kernel(name, f"load_kernel({name!r}, {body}", gpu=False)
        if self._replaced is not None:
            leave_out_unread(self._replaced)
        self.codegen_comment(wrapper)
        operands = [each.codegen_reference() for each in (*self.inputs, self)]
        wrapper.writeline(f"{name}({', '.join(operands)})")
