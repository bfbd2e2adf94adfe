"""Convolutions with weights that `torch._inductor.config.freezing` packed for oneDNN, where another way is faster than
its call (docs/design/products.md).

Inductor has fused them with an activation by now: a node calls oneDNN's operator, or a lowering of Inductor that takes
the same arguments.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils.weak import WeakTensorKeyDictionary

from halide_backend.device_type import CPU
from halide_backend.graph_passes.new_node import new_node
from halide_backend.selection import is_selected

_aten = torch.ops.aten
_CONVOLUTION = torch.ops.mkldnn._convolution_pointwise.default

#: Channels of a picture up to which its filters are a kernel of this backend.
MOST_CHANNELS = 4

#: How many times as many products a filter may have when its picture's padding is in its weights; 3 x 3 become 4 x 4.
_MORE_PRODUCTS = 2

#: Products of a picture of one point up to which loops of this backend take less time than a call of oneDNN
#: (benchmarks/frozen_convolutions.py).
_FEW_PRODUCTS = 1 << 18


def pack_one_dimensional(graph: GraphModule) -> None:
    """Let oneDNN's operator compute filters along one dimension, as pictures of one row, with the layout of its own
    that Inductor gives the weights of two dimensions alone (benchmarks/partitions.py).

    Inductor's cache keeps no graph with such weights, and this pass does not run for a graph from there, so it is for
    graphs that have a packed constant already.
    """
    # Parameters of a graph for a package are attributes of submodules, by names with dots.
    constants = (getattr(graph, str(each.target), None) for each in graph.graph.nodes if each.op == "get_attr")
    if any(getattr(constant, "is_mkldnn", False) for constant in constants):
        for node in graph.graph.find_nodes(op="call_function", target=_aten.convolution.default):
            _pack(graph, node)


def _pack(graph: GraphModule, node: Any) -> None:
    x, weight, bias, stride, padding, dilation, is_transposed, _, groups = node.args
    value = x.meta["val"]
    if is_transposed or weight.op != "get_attr" or (bias is not None and bias.op != "get_attr"):
        return
    filters = getattr(graph, str(weight.target))
    is_static = all(isinstance(size, int) for size in value.shape)
    if filters.dim() != 3 or filters.dtype != torch.float32 or not is_static or value.numel() == 0:
        return
    stride, padding, dilation = [1, *stride], [0, *padding], [1, *dilation]
    name = f"{weight.target}_for_{node.name}"
    pack = torch._C._nn.mkldnn_reorder_conv2d_weight
    picture = [*value.shape[:2], 1, value.shape[2]]
    rows = filters.detach().unsqueeze(2).to_mkldnn()
    graph.register_buffer(name, pack(rows, padding, stride, dilation, groups, picture))
    with graph.graph.inserting_before(node):
        row = new_node(_aten.unsqueeze.default, x, 2)
        packed = graph.graph.get_attr(name)
        arguments: Any = (row, packed, bias, padding, stride, dilation, groups, "none", [], "")
        filtered = graph.graph.call_function(_CONVOLUTION, arguments)
        filtered.meta.update(node.meta, val=node.meta["val"].unsqueeze(2))
        result = new_node(_aten.squeeze.dim, filtered, 2)
    node.replace_all_uses_with(result)
    graph.graph.erase_node(node)
    if not weight.users:
        graph.graph.erase_node(weight)


def fold_padding(graph: GraphModule) -> None:
    """Put what pads one side of a picture more than the other, for a depthwise filter or for filters of few channels,
    into the filters' weights.

    oneDNN's operator pads both sides alike. n zeros before the weights of an axis, and n more elements of padding on
    both of its sides, give the same sums as n elements of padding behind it. This backend's kernels leave the zeros out
    again (`zeros_for_padding`). A picture that loops compute is padded on the way; others would be copied.
    """
    for padded in graph.graph.find_nodes(op="call_function", target=_aten.constant_pad_nd.default):
        picture, users = padded.args[0], [*padded.users]
        is_loop = not (picture.op == "placeholder" or _is_packed_convolution(graph, picture))
        if len(users) == 1 and not is_loop and _is_packed_convolution(graph, users[0]):
            _fold(graph, padded, users[0])


def _is_packed_convolution(graph: GraphModule, node: Any) -> bool:
    """Whether `node` has the arguments of oneDNN's operator, and a constant weight in a layout of oneDNN."""
    if len(node.args) < 7 or not (node.target is _CONVOLUTION or isinstance(node.target, functools.partial)):
        return False
    _, weight, _, padding, stride, dilation, groups = node.args[:7]
    lists = all(isinstance(each, (list, tuple)) for each in (padding, stride, dilation))
    if not (lists and isinstance(groups, int) and isinstance(weight, Node) and weight.op == "get_attr"):
        return False
    return bool(getattr(graph, str(weight.target)).is_mkldnn)


#: By packed weights: columns of zeros on their left and right, and rows above and below, that are there for padding.
_zeros = WeakTensorKeyDictionary()


def zeros_for_padding(filters: Tensor) -> tuple[int, int, int, int]:
    """Columns on the left and on the right of packed weights, and rows above and below them, that `fold_padding` put
    there."""
    found: tuple[int, int, int, int] = _zeros.get(filters, (0, 0, 0, 0))
    return found


def _fold(graph: GraphModule, padded: Any, node: Any) -> None:
    picture, sides, *fill = padded.args
    weight, bias, padding, stride, dilation, groups, *rest = node.args[1:]
    value = picture.meta["val"]
    dense: Tensor = getattr(graph, str(weight.target)).to_dense()
    is_depthwise = dense.shape[0] == groups == value.shape[1]
    has_kernel = dense.dim() == 4 and (is_depthwise or (groups == 1 and value.shape[1] <= MOST_CHANNELS))
    if node.args[0] is not padded or len(sides) != 4 or min(sides) < 0 or fill not in ([], [0], [0.0]):
        return
    if not has_kernel or dense.dtype != torch.float32 or set(dilation) != {1}:
        return
    if not all(isinstance(size, int) for size in value.shape):
        return
    left, right, top, bottom = sides
    zeros = (max(right - left, 0), max(left - right, 0), max(bottom - top, 0), max(top - bottom, 0))
    wide = F.pad(dense, zeros)
    if wide.numel() > _MORE_PRODUCTS * dense.numel():
        return
    padding, stride, dilation = (list(pair) * (2 // len(pair)) for pair in (padding, stride, dilation))
    both_sides = [padding[0] + max(top, bottom), padding[1] + max(left, right)]
    name = f"{weight.target}_with_padding_of_{node.name}"
    pack = torch._C._nn.mkldnn_reorder_conv2d_weight
    filters = pack(wide.to_mkldnn(), both_sides, stride, dilation, groups, list(value.shape))
    _zeros[filters] = zeros
    graph.register_buffer(name, filters)
    with graph.graph.inserting_before(node):
        packed = graph.graph.get_attr(name)
    packed.meta.update(weight.meta)
    node.args = (picture, packed, bias, both_sides, stride, dilation, groups, *rest)
    graph.graph.erase_node(padded)
    if not weight.users:
        graph.graph.erase_node(weight)


@functools.cache
def compute_single_points() -> None:
    """Let Inductor lower filters of 1 x 1 over pictures of one point to loops, as squeeze-and-excitation blocks have
    them, if there are few products; for graphs of this backend, in whatever fused node the filter is."""
    from torch._inductor.lowering import lowerings

    call_of_onednn = lowerings[_CONVOLUTION]

    def lower(x: Any, weight: Any, bias: Any, *steps: Any) -> Any:
        *geometry, activation, _, _ = steps
        is_ours = is_selected(CPU) and activation in _ACTIVATIONS and _is_single_point(x, weight, *geometry)
        return _sums(x, weight, bias, activation) if is_ours else call_of_onednn(x, weight, bias, *steps)

    lowerings[_CONVOLUTION] = lower


def _constant(weight: Any) -> Tensor | None:
    from torch._inductor.virtualized import V

    return V.graph.constants.get(weight.get_name())


def _is_single_point(x: Any, weight: Any, padding: Any, stride: Any, dilation: Any, groups: int) -> bool:
    sizes, filters = x.get_size(), _constant(weight)
    if filters is None or filters.dtype != torch.float32 or x.get_device().type != CPU.name:
        return False
    if not all(getattr(size, "is_number", True) for size in sizes):
        return False
    one_point = all(size == 1 for size in (*sizes[2:], *filters.shape[2:])) and not any(padding)
    return one_point and groups == 1 and int(sizes[0]) * filters.numel() <= _FEW_PRODUCTS


def _sums(x: Any, weight: Any, bias: Any, activation: str) -> Any:
    from torch._inductor.ir import Reduction
    from torch._inductor.lowering import lowerings
    from torch._inductor.virtualized import V, ops
    from torch.utils._mode_utils import no_dispatch

    with no_dispatch():
        dense = V.graph.constants[weight.get_name()].to_dense().flatten(1)
    filters, channels = dense.shape
    x.realize()  # each of its elements is read for all filters
    load, load_weight = x.make_loader(), V.graph.add_tensor_constant(dense).make_loader()

    def product(index: Any, reduced: Any) -> Any:
        picture, filter = index[:2]
        (channel,) = reduced
        return ops.mul(load((picture, channel, *index[2:])), load_weight((filter, channel)))

    result = Reduction.create(
        device=x.get_device(),
        dst_dtype=torch.float32,
        src_dtype=torch.float32,
        inner_fn=product,
        ranges=[x.get_size()[0], filters, *x.get_size()[2:]],
        reduction_ranges=[channels],
        reduction_type="sum",
    )
    result.realize()
    if bias is not None:
        column = lowerings[_aten.view.default](bias, [filters, *(1 for _ in x.get_size()[2:])])
        result = lowerings[_aten.add.Tensor](result, column)
    return _ACTIVATIONS[activation](result)


def _relu(value: Any) -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[_aten.relu.default](value)


def _sigmoid(value: Any) -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[_aten.sigmoid.default](value)


def _swish(value: Any) -> Any:
    from torch._inductor.lowering import lowerings

    return lowerings[_aten.mul.Tensor](value, _sigmoid(value))


#: By oneDNN's names.
_ACTIVATIONS = {"none": lambda value: value, "relu": _relu, "sigmoid": _sigmoid, "swish": _swish}
