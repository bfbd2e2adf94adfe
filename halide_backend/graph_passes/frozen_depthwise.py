"""Depthwise filters of frozen graphs, whose weights Inductor packed for oneDNN, are kernels of this backend
(docs/design/products.md).

A swish that oneDNN would compute with the layer before a filter is computed by the filter's kernel as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halide_backend.codegen.cpu.depthwise_text import depthwise_text, tiles
from halide_backend.device_type import CPU
from halide_backend.graph_passes.depthwise_call import DepthwiseCall
from halide_backend.graph_passes.frozen_convolutions import zeros_for_padding
from halide_backend.graph_passes.partition_call import PartitionCall
from halide_backend.kernel_library.depthwise import ACTIVATIONS, Depthwise

#: Weights of a channel up to which there is a kernel: it has an instruction for each of them and each column of a tile.
_MOST_WEIGHTS = 81

#: By oneDNN's name.
_SWISH = "swish"

#: Elements from which an index is no int32, which is what the kernel computes.
_TOO_FAR = 2**31


def filter_each_channel(x: Any, packed: Any, weights: Tensor, offsets: Tensor | None, *rest: Any) -> Any:
    """The call of a kernel for a filter of `x`, or None if there is no kernel for that.

    `weights` are what the constant `packed` holds, (channels, 1, rows, columns); `rest` is padding, stride, dilation,
    groups and the activation, as oneDNN's operator has them.
    """
    from torch._inductor.ir import ExternKernel, TensorBox
    from torch._inductor.virtualized import V
    from torch.utils._mode_utils import no_dispatch

    zeros = zeros_for_padding(V.graph.constants[packed.get_name()])
    work, lanes = _work(x, weights, zeros, rest), _lanes()
    if work is None or work.channels < lanes:
        return None
    picture = ExternKernel.require_stride_order(ExternKernel.realize_input(x), [3, 0, 2, 1])
    if _takes_swish(picture):
        work = dataclasses.replace(work, before=_SWISH)
    with no_dispatch():
        row, column = zeros[2], zeros[0]
        taps = weights[:, 0, row : row + work.down, column : column + work.across].permute(1, 2, 0).contiguous()
        offsets = torch.zeros(work.channels) if offsets is None else offsets
    constants = [V.graph.add_tensor_constant(each) for each in (taps, offsets)]
    operands = [picture, *map(ExternKernel.realize_input, constants)]
    text = depthwise_text(work, tiles(work, lanes, torch.get_num_threads()))
    return TensorBox.create(DepthwiseCall(text, operands, work.out_dims, packed.get_name()))


def _work(x: Any, weights: Tensor, zeros: Sequence[int], rest: Sequence[Any]) -> Depthwise | None:
    """What the kernel computes if no activation comes before the filter, or None. `zeros` are columns on the left and
    on the right of the weights, and rows above and below, that are there for padding alone."""
    padding, stride, dilation, groups, after = rest
    sizes = [*x.get_size(), *weights.shape]
    if x.get_dtype() != torch.float32 or after not in ACTIVATIONS or len(sizes) != 8 or set(dilation) != {1}:
        return None
    batch, channels, height, width = map(int, x.get_size())
    if not (weights.shape[:2] == (channels, 1) and groups == channels):
        return None
    (above, left), steps = ([*pair] * (2 // len(pair)) for pair in (padding, stride))
    rows, columns = (
        (extent + 2 * outside - taps) // step + 1
        for extent, outside, taps, step in zip((height, width), (above, left), weights.shape[2:], steps)
    )
    before_column, behind_column, before_row, behind_row = zeros
    work = Depthwise(
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        rows=rows,
        columns=columns,
        down=weights.shape[2] - before_row - behind_row,
        across=weights.shape[3] - before_column - behind_column,
        stride=(steps[0], steps[1]),
        above=above - before_row,
        left=left - before_column,
        before="none",
        after=after,
    )
    elements = batch * channels * max(height * width, rows * columns)
    return work if work.down * work.across <= _MOST_WEIGHTS and elements < _TOO_FAR else None


def _takes_swish(picture: Any) -> bool:
    """Whether `picture` is made by a layer for this filter alone, with a swish that the layer now leaves out."""
    from torch._inductor.ir import MultiOutput, StorageBox, TensorBox
    from torch._inductor.mkldnn_ir import ConvolutionUnary
    from torch._inductor.virtualized import V

    made = V.graph.current_node.args[0]
    if len(made.users) != 1 or len(made.args) < 7:
        return False
    layer = picture
    while isinstance(layer, (TensorBox, StorageBox)):
        layer = layer.data
    if isinstance(layer, PartitionCall):
        return layer.leave_out_swish()
    if not (isinstance(layer, MultiOutput) and isinstance(layer.inputs[0], ConvolutionUnary)):
        return False
    *geometry, activation, _, _ = layer.inputs[0].constant_args
    if activation == _SWISH:
        layer.inputs[0].constant_args = [*geometry, "none", [], ""]
    return bool(activation == _SWISH)


def _lanes() -> int:
    from halide_backend.pipeline import current_target

    return current_target(CPU.name).vector_bytes // 4
