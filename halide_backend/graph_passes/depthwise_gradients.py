"""The gradients of large depthwise filters, as loops of this backend (docs/design/products.md).

oneDNN has a fast kernel for filters of 3 x 3. For those of 7 x 7, as ConvNeXt has, it sums products of pictures in
another way, at a tenth of the processor's peak.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

_library = torch.library.Library("halide_backend", "FRAGMENT")
_library.define(
    "depthwise_weight_gradient(Tensor gradient, Tensor input, int[2] kernel, int[2] stride, int[2] padding, "
    "int[2] dilation) -> Tensor"
)

#: `gradient` of N x C x P x Q, `input` of N x C x H x W -> C x 1 x R x S for a `kernel` of R x S.
WEIGHT_GRADIENT = torch.ops.halide_backend.depthwise_weight_gradient.default

_aten = torch.ops.aten
_BACKWARD = _aten.convolution_backward.default

#: Filters of fewer points, and fewer channels, are left to oneDNN, and numbers of channels that vectors do not divide.
_FEWEST_POINTS, _FEWEST_CHANNELS, _LANES = 25, 64, 16

#: What filters are made of; products are added up in float32.
_DTYPES = (torch.float32, torch.bfloat16)


def compute_depthwise_gradients(graph: GraphModule) -> None:
    """Take the gradients of weights and biases out of the backward steps of such filters."""
    for node in graph.graph.find_nodes(op="call_function", target=_BACKWARD):
        if _is_large_depthwise(node):
            _install_lowering()
            _rewrite(node)


def _is_large_depthwise(node: Node) -> bool:
    """Whether it is the backward step of one filter for each channel, two-dimensional, of floats on a CPU."""
    gradient, _, weight, _, _, _, _, transposed, _, groups, mask = _arguments(node)
    value = weight.meta["val"]
    if value.dim() != 4 or value.dtype not in _DTYPES or value.device.type != "cpu" or transposed or not mask[1]:
        return False
    if not all(isinstance(size, int) for size in (*value.shape, *gradient.meta["val"].shape[1:])):
        return False
    filters, each, rows, columns = value.shape
    is_fast = rows * columns >= _FEWEST_POINTS and filters >= _FEWEST_CHANNELS and filters % _LANES == 0
    return bool(each == 1 and filters == groups and is_fast)


def _rewrite(node: Node) -> None:
    gradient, input, weight, bias_sizes, stride, padding, dilation, *rest, mask = _arguments(node)
    value = weight.meta["val"]
    pairs = [list(pair) * (2 // len(pair)) for pair in (stride, padding, dilation)]
    graph = node.graph
    with graph.inserting_before(node):
        of_weight = graph.call_function(WEIGHT_GRADIENT, (gradient, input, list(value.shape[2:]), *pairs))
        of_weight.meta["val"] = value.new_empty(value.shape)
        gradients = {1: of_weight}
        if mask[2]:  # with the bias ATen would compute the weight's gradient, too
            gradients[2] = graph.call_function(_aten.sum.dim_IntList, (gradient, [0, 2, 3]))
            gradients[2].meta["val"] = value.new_empty(value.shape[:1])
    left = [mask[0], False, False]
    node.args = (gradient, input, weight, bias_sizes, stride, padding, dilation, *rest, left)
    node.meta["val"] = (node.meta["val"][0], None, None)
    for part in list(node.users):
        if part.args[1] in gradients:
            part.replace_all_uses_with(gradients[part.args[1]])
            graph.erase_node(part)
    if not node.users:
        graph.erase_node(node)


def _arguments(node: Any) -> list[Any]:
    return list(node.args)


def _install_lowering() -> None:
    from torch._inductor.lowering import lowerings, register_lowering

    if WEIGHT_GRADIENT not in lowerings:
        register_lowering(WEIGHT_GRADIENT, type_promotion_kind=None)(_lower)


def _lower(gradient: Any, input: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """A sum over pictures and their points of products with shifted pictures; channels are contiguous in both."""
    from torch._inductor.ir import ExternKernel, Reduction
    from torch._inductor.lowering import lowerings
    from torch._inductor.virtualized import ops

    (top, left), (rows, columns) = padding, kernel
    # Stored with its padding: each element is read for all points of the filter, without a mask.
    padded = lowerings[_aten.constant_pad_nd.default](input, [left, left, top, top], 0.0)
    padded, gradient = (ExternKernel.require_channels_last(value) for value in (padded, gradient))
    load, load_gradient = padded.make_loader(), gradient.make_loader()

    def product(index: Any, reduced: Any) -> Any:
        channel, _, row, column = index
        picture, y, x = reduced
        place = (picture, channel, y * stride[0] + row * dilation[0], x * stride[1] + column * dilation[1])
        factors = load(place), load_gradient((picture, channel, y, x))
        return ops.mul(*(ops.to_dtype(factor, torch.float32) for factor in factors))

    pictures, channels, height, width = gradient.get_size()
    result = Reduction.create(
        device=gradient.get_device(),
        dst_dtype=torch.float32,
        src_dtype=torch.float32,
        inner_fn=product,
        ranges=[channels, 1, rows, columns],
        reduction_ranges=[pictures, height, width],
        reduction_type="sum",
    )
    result.realize()
    return lowerings[torch.ops.prims.convert_element_type.default](result, gradient.get_dtype())


def _computed(
    gradient: Tensor, input: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]
) -> Tensor:
    channels = input.shape[1]
    weight = input.new_empty(channels, 1, *kernel)
    steps = (stride, padding, dilation, False, [0, 0], channels, [False, True, False])
    result: Tensor = _BACKWARD(gradient, input, weight, None, *steps)[1]
    return result


def _shape(gradient: Tensor, input: Tensor, kernel: list[int], *steps: list[int]) -> Tensor:
    return input.new_empty(input.shape[1], 1, *kernel)


_library.impl("depthwise_weight_gradient", _computed, "CPU")
# Not by `register_fake`, which looks for the line of its caller among all modules: 20 ms of `import torch._inductor`.
_library.impl("depthwise_weight_gradient", _shape, "Meta")
