"""Products and convolutions of bfloat16 in float32, where that is faster (docs/design/products.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch._inductor import config
from torch.fx import Graph, GraphModule, Node

from halide_backend.graph_passes.product_sizes import hint
from halide_backend.products.choice import Choice
from halide_backend.products.precision import Kind, Work

_aten = torch.ops.aten
_CONVERT = torch.ops.prims.convert_element_type.default

#: The operators, and which of their arguments are tensors.
_CONVOLUTIONS = {_aten.convolution.default: (0, 1, 2), _aten.convolution_backward.default: (0, 1, 2)}
_TENSORS = {
    _aten.mm.default: (0, 1),
    _aten.bmm.default: (0, 1),
    _aten.addmm.default: (0, 1, 2),
    _aten.baddbmm.default: (0, 1, 2),
    **_CONVOLUTIONS,
}

#: What only names the elements of a matrix otherwise: its operand is converted, in the order in which it lies.
_VIEWS = {_aten.permute.default, _aten.t.default, _aten.transpose.int}


def compute_bfloat16_products(graph: GraphModule) -> None:
    """Rewrite products that are faster in float32: sums are float32's in any case, and the result is rounded once."""
    choice = Choice.of_this_process()
    # A search among templates, which somebody asked for, is not cut short.
    if config.max_autotune or config.max_autotune_gemm or not choice.may_widen():
        return
    widened: dict[Node, Node] = {}
    for node in list(graph.graph.nodes):
        if node.target in _TENSORS and _is_worthwhile(node, choice):
            _widen(graph.graph, node, widened)


def _is_worthwhile(node: Node, choice: Choice) -> bool:
    operands = list(_operands(node))
    if any(o.meta["val"].dtype != torch.bfloat16 or o.meta["val"].device.type != "cpu" for o in operands):
        return False
    work = _convolution(node) if node.target in _CONVOLUTIONS else _product(node)
    return work.multiplications > 0 and choice.widens(work)


def _operands(node: Node) -> Iterator[Node]:
    for place in _TENSORS[node.target]:
        operand = node.args[place]
        if isinstance(operand, Node):
            yield operand


def _product(node: Node) -> Work:
    left, right = (node.args[place].meta["val"] for place in _TENSORS[node.target][-2:])
    *batch, m, k = map(hint, left.shape)
    n = hint(right.shape[-1])
    count = math.prod(batch)
    return Work(Kind.PRODUCT, count * m * n * k, count * (m * k + k * n + m * n))


def _convolution(node: Node) -> Work:
    backward = node.target == _aten.convolution_backward.default
    result, input, weight = [node.args[0], *node.args[1:3]] if backward else [node, *node.args[:2]]
    elements = [math.prod(map(hint, each.meta["val"].shape)) for each in (result, input, weight)]
    transposed = node.args[7 if backward else 6]
    # Each number of a filter is used for every point of one channel.
    of_filter = math.prod(map(hint, weight.meta["val"].shape[1:]))
    kind = Kind.BACKWARD_STEP if backward else Kind.CONVOLUTION
    stride = node.args[4 if backward else 3]
    strided = backward and weight.meta["val"].shape[:2] == (node.args[9], 1) and any(step != 1 for step in stride)
    return Work(kind, elements[1 if transposed else 0] * of_filter, sum(elements), strided)


def _widen(graph: Graph, node: Node, widened: dict[Node, Node]) -> None:
    """Convert the operands of `node` before it, once for all products, and its results after it."""
    with graph.inserting_before(node):
        for operand in list(_operands(node)):
            wide = _wide(graph, operand, widened)
            node.args = tuple(wide if argument is operand else argument for argument in node.args)
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        node.meta["val"] = value.to(torch.float32)
        _narrow(graph, node)
        return
    node.meta["val"] = tuple(part if part is None else part.to(torch.float32) for part in value)
    for part in list(node.users):
        part.meta["val"] = part.meta["val"].to(torch.float32)
        _narrow(graph, part)


def _wide(graph: Graph, operand: Node, widened: dict[Node, Node]) -> Node:
    if operand not in widened:
        if operand.target in _VIEWS:
            base, *rest = operand.args
            wide = graph.call_function(operand.target, (_wide(graph, base, widened), *rest))
        else:
            wide = graph.call_function(_CONVERT, (operand, torch.float32))
        wide.meta["val"] = operand.meta["val"].to(torch.float32)
        widened[operand] = wide
    return widened[operand]


def _narrow(graph: Graph, node: Node) -> None:
    with graph.inserting_after(node):
        narrow = graph.call_function(_CONVERT, (node, torch.bfloat16))
    narrow.meta["val"] = node.meta["val"].to(torch.bfloat16)
    node.replace_all_uses_with(narrow, delete_user_cb=lambda user: user is not narrow)
