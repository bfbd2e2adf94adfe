"""Largest and smallest elements' places, found in two steps where few lines are long: in parts, then among these.

Inductor splits sums so, but no arg-reduction: on a GPU one block would look through a whole tensor.
"""

from __future__ import annotations

import math

import torch
from torch.fx import GraphModule, Node

from halide_backend.graph_passes.new_node import new_node
from halide_backend.graph_passes.product_sizes import hint
from halide_backend.graph_passes.reduction_splits import LINES, near_divisor

_aten = torch.ops.aten
_KINDS = (_aten.argmax.default, _aten.argmin.default)

#: Bytes of a part: a block keeps as many in shared memory, and looks at them twice, for the best element and for its
#: place.
_PART_BYTES = 1 << 15

#: Elements of a row, typically, from which the rows of a tensor of unknown size are its parts.
_LONG_ROW = 256


def split_arg_reductions(graph: GraphModule) -> None:
    """Rewrite such arg-reductions of a CUDA graph."""
    for kind in _KINDS:
        for node in graph.graph.find_nodes(op="call_function", target=kind):
            if node.meta["val"].device.type == "cuda":
                _split(node)


def _split(node: Node) -> None:
    """Rewrite the arg-reduction `node`, if its lines are few, long, of known length, and views can have their parts, or
    if it is over a tensor of unknown size whose rows are long."""
    whole, dim = _arguments(node)
    value = whole.meta["val"]
    shape = [size for size in value.shape if isinstance(size, int)]
    if dim is None and len(shape) != value.dim() > 1:
        _by_rows(node, whole)
        return
    if len(shape) != value.dim() or not shape or (dim is None and not value.is_contiguous()):
        return
    if dim is None:
        shape, place = [math.prod(shape)], 0
    else:
        place = dim % len(shape)
    length = shape[place]
    lines = math.prod(shape) // max(length, 1)
    wanted = length * value.dtype.itemsize // _PART_BYTES
    parts = near_divisor(length, wanted)
    if lines >= LINES or wanted < 2 or length % parts:
        return
    with node.graph.inserting_before(node):
        divided = [*shape[:place], parts, length // parts, *shape[place + 1 :]]
        split_up = new_node(_aten.view.default, whole, divided)
        best_of_part = new_node(node.target, split_up, place + 1, True)
        values = new_node(_aten.gather.default, split_up, place + 1, best_of_part)
        part = new_node(node.target, values, place, True)
        within = new_node(_aten.gather.default, best_of_part, place, part)
        found = new_node(_aten.add.Tensor, new_node(_aten.mul.Tensor, part, length // parts), within)
        result = new_node(_aten.view.default, found, list(node.meta["val"].shape))
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)


def _by_rows(node: Node, whole: Node) -> None:
    """Rewrite an arg-reduction over all of a tensor: first in each of its rows, whichever their number and length."""
    value = whole.meta["val"]
    *rows, length = map(hint, value.shape)
    if length < _LONG_ROW or math.prod(rows) * length * value.dtype.itemsize < 2 * _PART_BYTES:
        return
    with node.graph.inserting_before(node):
        best_of_row = new_node(node.target, whole, value.dim() - 1, True)
        values = new_node(_aten.gather.default, whole, value.dim() - 1, best_of_row)
        row = new_node(_aten.view.default, new_node(node.target, values), [1])
        within = new_node(_aten.gather.default, new_node(_aten.view.default, best_of_row, [-1]), 0, row)
        columns = new_node(_aten.sym_size.int, whole, value.dim() - 1)
        found = new_node(_aten.add.Tensor, new_node(_aten.mul.Tensor, row, columns), within)
        result = new_node(_aten.view.default, found, list(node.meta["val"].shape))
    node.replace_all_uses_with(result)
    node.graph.erase_node(node)


def _arguments(node: Node) -> tuple[Node, int | None]:
    """What is reduced, and along which dimension: None for all."""
    whole, *rest = node.args
    assert isinstance(whole, Node)
    dim = rest[0] if rest else node.kwargs.get("dim")
    assert dim is None or isinstance(dim, int)
    return whole, dim
