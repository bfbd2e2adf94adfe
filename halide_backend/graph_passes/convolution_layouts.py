"""Convolutions on a CPU get pictures in the layout that makes the whole step fast (docs/design/products.md).

Inductor lowers every convolution of a CPU with pictures and weights in channels-last. oneDNN is about as fast with
contiguous ones, which it reorders by itself, but for channels-last every step copies weights, and in training their
gradients; only in inference with a matrix unit (AMX) it is slower with contiguous ones of bfloat16. The backward step
of depthwise filters in turn Inductor lowers with contiguous pictures, between loops of channels-last ones. An operator
of this package in the place of ATen's is lowered to the same call without either.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config
from torch.fx import GraphModule, Node

from halide_backend.graph_passes.product_sizes import hint
from halide_backend.products.processor import Processor

_library = torch.library.Library("halide_backend", "FRAGMENT")
_STEPS = "SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups"
_library.define(f"convolution(Tensor input, Tensor weight, Tensor? bias, {_STEPS}) -> Tensor")
_library.define(
    "channels_last_convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, "
    f"{_STEPS}, bool[3] output_mask) -> (Tensor, Tensor, Tensor)"
)

#: ATen's operators of the same arguments. The first leaves the layout to its operands; the second is of pictures in
#: channels-last, four-dimensional, and has its gradient of them in that layout, too.
CONVOLUTION = torch.ops.halide_backend.convolution.default
CHANNELS_LAST_BACKWARD = torch.ops.halide_backend.channels_last_convolution_backward.default

_aten = torch.ops.aten
_FORWARD, _BACKWARD = _aten.convolution.default, _aten.convolution_backward.default

#: Copying a weight takes as long as oneDNN takes to reorder so many elements of pictures
#: (benchmarks/convolution_layouts.py).
_ELEMENTS_A_WEIGHT = 3


def choose_convolution_layouts(graph: GraphModule) -> None:
    """Let operands keep their layouts where Inductor would copy more than that saves."""
    # A search among templates, or a layout, that somebody asked for.
    if config.max_autotune or config.max_autotune_gemm or config.force_layout_optimization:
        return
    forward = graph.graph.find_nodes(op="call_function", target=_FORWARD)
    if config.layout_optimization and forward and _weights_outweigh_pictures(graph, forward):
        _replace(forward, CONVOLUTION)
    backward = graph.graph.find_nodes(op="call_function", target=_BACKWARD)
    _replace([node for node in backward if _is_depthwise_channels_last(node)], CHANNELS_LAST_BACKWARD)


def _weights_outweigh_pictures(graph: GraphModule, convolutions: Sequence[Node]) -> bool:
    """Whether Inductor takes channels-last for the graph, and copying the weights costs more than reordering pictures.

    Channels-last is for a graph as a whole: layers with it and without it beside each other would copy between them.
    """
    operands = [node.args[index] for node in convolutions for index in (0, 1)]
    if not all(_value(each).device.type == "cpu" for each in operands) or _has_packed_convolutions(graph):
        return False
    narrow = _value(operands[0]).dtype == torch.bfloat16 and Processor.host().has_matrix_unit
    if narrow and not _are_saved(graph, [node.args[1] for node in convolutions]):
        return False
    flat = [node for node in convolutions if _value(node.args[0]).dim() == _value(node.args[1]).dim() == 4]
    weights = sum(_count(_value(node.args[1])) for node in flat if not _is_channels_last(_value(node.args[1])))
    pictures = sum(_count(value) for node in flat for value in (_value(node.args[0]), node.meta["val"]))
    return 0 < pictures <= _ELEMENTS_A_WEIGHT * weights


def _are_saved(graph: GraphModule, weights: Sequence[Any]) -> bool:
    """Whether the graph returns weights, or what they are made from, as it does where a backward step needs them."""
    saved = set(graph.graph.output_node().all_input_nodes)
    return any(not saved.isdisjoint((weight, *weight.all_input_nodes)) for weight in weights)


def _has_packed_convolutions(graph: GraphModule) -> bool:
    """Whether `freezing` has brought weights into oneDNN's own format, so that there is nothing to copy."""
    names = ("mkldnn._convolution", "onednn.qconv")
    return any(str(node.target).startswith(names) for node in graph.graph.nodes)


def _is_depthwise_channels_last(node: Node) -> bool:
    """Whether it is the backward step, on a CPU, of filters of one channel each, over pictures in channels-last."""
    gradient, picture, weight = (_value(each) for each in node.args[:3])
    if picture.dim() != 4 or weight.dim() != 4 or picture.device.type != "cpu" or node.args[7]:
        return False
    each, points = weight.shape[1], prod(weight.shape[2:])
    return bool(each == 1 and points > 1 and all(_is_channels_last(value) for value in (gradient, picture)))


def _is_channels_last(value: Tensor) -> bool:
    """Whether channels are contiguous, or the layout is the contiguous one as well: of one channel, or of one point."""
    strides, sizes = value.stride(), value.shape
    channels, rows, columns = (hint(size) for size in sizes[1:])
    return channels == 1 or rows * columns == 1 or hint(strides[1]) == 1


def _value(node: Any) -> Tensor:
    value: Tensor = node.meta["val"]
    return value


def _count(value: Tensor) -> int:
    return prod(hint(size) for size in value.shape)


def _replace(nodes: Sequence[Node], target: Any) -> None:
    if nodes:
        _install_lowerings()
    for node in nodes:
        node.target = target


def _install_lowerings() -> None:
    from torch._inductor.lowering import (
        add_layout_constraint,
        add_needs_realized_inputs,
        constrain_to_fx_strides,
        lowerings,
        register_lowering,
    )

    if CONVOLUTION in lowerings:
        return
    add_needs_realized_inputs([CONVOLUTION, CHANNELS_LAST_BACKWARD])
    add_layout_constraint(CONVOLUTION, constrain_to_fx_strides)
    register_lowering(CONVOLUTION, type_promotion_kind=None)(lowerings[_FORWARD])
    register_lowering(CHANNELS_LAST_BACKWARD, type_promotion_kind=None)(_lower_backward)


def _lower_backward(gradient: Any, picture: Any, weight: Any, *steps: Any) -> Any:
    from torch._inductor.ir import ExternKernel
    from torch._inductor.lowering import fallback_handler

    gradient, picture = (ExternKernel.require_channels_last(each) for each in (gradient, picture))
    return fallback_handler(_BACKWARD, add_to_fallback_set=False)(gradient, picture, weight, *steps)


for _dispatch_key in ("CPU", "Meta"):
    _library.impl("convolution", _FORWARD, _dispatch_key)
    _library.impl("channels_last_convolution_backward", _BACKWARD, _dispatch_key)
