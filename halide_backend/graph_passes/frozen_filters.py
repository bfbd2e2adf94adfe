"""Convolutions of frozen graphs whose weights Inductor packed for oneDNN, and which kernels of this backend compute:
depthwise filters, those of pictures with few channels, and those of 3 x 3 over many channels
(docs/design/products.md).

A swish that oneDNN would compute with the layer before a depthwise filter is computed by the filter's kernel as well.
Halide is imported when there is such a convolution: what only rewrites graphs does without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halide_backend import config
from halide_backend.device_type import CPU
from halide_backend.graph_passes import winograd
from halide_backend.graph_passes.filter_call import FilterCall
from halide_backend.graph_passes.frozen_convolutions import MOST_CHANNELS, zeros_for_padding
from halide_backend.graph_passes.partition_call import PartitionCall
from halide_backend.kernel_library.window import Window

#: Weights of a channel, and of a row of filters in all channels, up to which there is a kernel: it has an instruction
#: for each of them and each column of a tile.
_MOST_WEIGHTS, _MOST_OF_A_ROW = 81, 32

#: Elements from which an index is no int32, which is what the kernels compute.
_TOO_FAR = 2**31

#: By oneDNN's name.
_SWISH = "swish"


def filter_pictures(x: Any, packed: Any, weights: Tensor, offsets: Tensor | None, *rest: Any, added: Any = None) -> Any:
    """The call of a kernel for filters of `x`, or None if there is no kernel for them.

    `weights` are what the constant `packed` holds; `rest` is padding, stride, dilation, groups and the activation, as
    oneDNN's operator has them. `added` is added before the activation.
    """
    from torch._inductor.virtualized import V
    from torch.utils._mode_utils import no_dispatch

    from halide_backend.kernel_library.activations import ACTIVATIONS

    *geometry, after = rest
    if x.get_dtype() != torch.float32 or len(x.get_size()) != 4 or after not in ACTIVATIONS:
        return None
    with no_dispatch():
        zeros = zeros_for_padding(V.graph.constants[packed.get_name()])
        window, taps = _window(x, weights, zeros, *geometry[:2])
    batch, channels, height, width = map(int, x.get_size())
    elements = batch * max(channels * height * width, len(weights) * window.rows * window.columns)
    *_, dilation, groups = geometry
    if set(dilation) != {1} or elements >= _TOO_FAR or len(weights) < _lanes():
        return None
    if groups == 1 and channels > MOST_CHANNELS:
        return _by_winograd(x, packed, window, taps, offsets, after, added)
    if added is not None:
        return None
    with no_dispatch():
        offsets = torch.zeros(len(weights)) if offsets is None else offsets
    if groups == len(weights) == channels:
        return _depthwise(x, packed, window, taps, offsets, after)
    return _first(x, packed, window, taps, offsets, after) if groups == 1 else None


def _window(x: Any, weights: Tensor, zeros: Sequence[int], padding: Any, stride: Any) -> tuple[Window, Tensor]:
    """The window of `weights`, (filters, channels, down, across), and those of them that are not for padding alone:
    `zeros` are columns on their left and on their right, and rows above and below, that are."""
    (above, left), (down, across) = ([*pair] * (2 // len(pair)) for pair in (padding, stride))
    _, _, height, width = map(int, x.get_size())
    rows, columns = weights.shape[2:]
    before_column, behind_column, before_row, behind_row = zeros
    taps = weights[:, :, before_row : rows - behind_row, before_column : columns - behind_column]
    window = Window(
        rows=(height + 2 * above - rows) // down + 1,
        columns=(width + 2 * left - columns) // across + 1,
        down=taps.shape[2],
        across=taps.shape[3],
        stride=(down, across),
        above=above - before_row,
        left=left - before_column,
    )
    return window, taps


def _depthwise(x: Any, packed: Any, window: Window, weights: Tensor, offsets: Tensor, after: str) -> Any:
    from torch.utils._mode_utils import no_dispatch

    from halide_backend.codegen.cpu.depthwise_text import depthwise_text, tiles
    from halide_backend.kernel_library.depthwise import Depthwise

    batch, channels, height, width = map(int, x.get_size())
    if weights.shape[1] != 1 or window.down * window.across > _MOST_WEIGHTS:
        return None
    work = Depthwise(
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        window=window,
        before="none",
        after=after,
    )
    picture = winograd.channels_last(x)
    if _takes_swish(picture):
        work = dataclasses.replace(work, before=_SWISH)
    text = depthwise_text(work, tiles(work, _lanes(), torch.get_num_threads()))
    with no_dispatch():
        taps = weights[:, 0].permute(1, 2, 0).contiguous()
    return _call("halide_depthwise", text, picture, (taps, offsets), work.out_dims, packed)


def _first(x: Any, packed: Any, window: Window, weights: Tensor, offsets: Tensor, after: str) -> Any:
    from torch._inductor.ir import ExternKernel
    from torch.utils._mode_utils import no_dispatch

    from halide_backend.codegen.cpu.first_convolution_text import first_convolution_text, tiles
    from halide_backend.kernel_library.first_convolution import FirstConvolution

    batch, channels, height, width = map(int, x.get_size())
    if channels * window.across > _MOST_OF_A_ROW:
        return None
    picture = ExternKernel.realize_input(x)
    picture.freeze_layout()
    of_batch, of_channel, of_row, of_column = map(int, picture.get_stride())
    if batch * of_batch + channels * of_channel + height * of_row + width * of_column >= _TOO_FAR:
        return None
    work = FirstConvolution(
        batch=batch,
        channels=channels,
        height=height,
        width=width,
        strides=(of_batch, of_channel, of_row, of_column),
        filters=len(weights),
        window=window,
        after=after,
    )
    text = first_convolution_text(work, tiles(work, _lanes(), torch.get_num_threads()))
    with no_dispatch():
        taps = weights.permute(2, 3, 1, 0).contiguous()
    return _call("halide_convolution", text, picture, (taps, offsets), work.out_dims, packed)


def _by_winograd(
    x: Any, packed: Any, window: Window, weights: Tensor, offsets: Tensor | None, after: str, added: Any
) -> Any:
    from torch.utils._mode_utils import no_dispatch

    size = [int(x.get_size()[0]), len(weights), window.rows, window.columns]
    if not config.winograd or not (added is None or [*added.get_size()] == size):
        return None
    has_offsets, adds = offsets is not None, added is not None
    planned = winograd.plan(x.get_size(), len(weights), window, has_offsets, after=after, adds=adds)
    if planned is None:
        return None
    with no_dispatch():
        transformed = winograd.transformed(weights, planned[1].filters)
    constants = [_constant(each) for each in (transformed, offsets) if each is not None]
    picture, *others = [winograd.channels_last(each) for each in (x, added) if each is not None]
    return winograd.call(planned, [picture, *constants, *others], packed.get_name())


def _call(
    kind: str,
    text: str,
    picture: Any,
    constants: Sequence[Tensor],
    dims: Sequence[tuple[int, int]],
    packed: Any,
) -> Any:
    from torch._inductor.ir import TensorBox

    operands = [picture, *map(_constant, constants)]
    return TensorBox.create(FilterCall(kind, text, operands, dims, packed.get_name()))


def _constant(tensor: Tensor) -> Any:
    from torch._inductor.ir import ExternKernel
    from torch._inductor.virtualized import V

    return ExternKernel.realize_input(V.graph.add_tensor_constant(tensor))


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
