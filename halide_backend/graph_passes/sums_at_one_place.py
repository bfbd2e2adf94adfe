"""Sums of rows in place of a scatter that adds all of them to one row.

The gradient of an embedding whose tokens are all the same, as the token types of a text are that has one type: Inductor
knows the index, a constant, and adds each row to memory. All threads would add to the same few addresses.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from halide_backend.graph_passes.new_node import new_node

_aten = torch.ops.aten
_MASKED = _aten._unsafe_masked_index_put_accumulate.default
_SCATTERS = (_aten.index_put.default, _aten.index_put_.default, _MASKED)

#: What a tensor with one value keeps of it: all of it.
_SHAPED = tuple(getattr(_aten, name).default for name in ("expand", "view", "reshape", "unsqueeze", "clone"))


def sum_at_one_place(graph: GraphModule) -> None:
    """Rewrite such scatters of a CUDA graph, into zeros."""
    found = [node for target in _SCATTERS for node in graph.graph.find_nodes(op="call_function", target=target)]
    for node in found:
        if node.meta["val"].device.type == "cuda" and (row := _row(node)) is not None:
            _rewrite(node, row)
    if found:
        graph.graph.eliminate_dead_code()


def _operands(node: Any) -> tuple[Node, Any, list[Any], Node]:
    """What is added to, the mask or True, the indices and the values."""
    if node.target is _MASKED:
        into, mask, indices, values = node.args
        return into, mask, indices, values
    into, indices, values, *_ = node.args
    return into, True, indices, values


def _row(node: Any) -> int | None:
    """The number of the row to which all are added, None if that is not known or something else is done."""
    into, _, indices, values = _operands(node)
    if node.target is not _MASKED and node.args[3:] != (True,):
        return None
    alone = node.target is not _aten.index_put_.default or len(into.users) == 1
    if (
        not alone
        or into.target is not _aten.full.default
        or into.args[1] != 0
        or len(indices) != 1
        or indices[0] is None
    ):
        return None
    result, index, elements = (each.meta["val"] for each in (into, indices[0], values))
    row = _number(indices[0])
    shapes = (*result.shape, *index.shape, *elements.shape)
    if not isinstance(row, int) or isinstance(row, bool) or not all(isinstance(size, int) for size in shapes):
        return None
    if tuple(elements.shape) != (*index.shape, *result.shape[1:]) or not index.dim() or index.dtype == torch.bool:
        return None
    if elements.dtype != result.dtype or not result.dtype.is_floating_point:
        return None
    rows = int(result.shape[0])
    return row % rows if -rows <= row < rows else None


def _number(node: Any) -> Any:
    """The one value of a tensor, None if it has several or is computed from data."""
    while isinstance(node, Node) and node.target in _SHAPED:
        node = node.args[0]
    if isinstance(node, Node):
        place = {_aten.full.default: 1, _aten.scalar_tensor.default: 0}.get(node.target)
        return None if place is None else node.args[place]
    return node


def _rewrite(node: Any, row: int) -> None:
    into, mask, indices, values = _operands(node)
    leading = indices[0].meta["val"].dim()
    rows, rest = int(into.meta["val"].shape[0]), into.meta["val"].dim() - 1
    with node.graph.inserting_before(node):
        if _number(mask) is not True:
            zeros = new_node(_aten.select.int, into, 0, 0)
            values = new_node(_aten.where.self, mask, values, zeros)
        total = new_node(_aten.sum.dim_IntList, values, list(range(leading)))
        placed = new_node(_aten.unsqueeze.default, total, 0)
        pads = [0, 0] * rest + [row, rows - 1 - row]
        node.replace_all_uses_with(new_node(_aten.constant_pad_nd.default, placed, pads))
    node.graph.erase_node(node)
