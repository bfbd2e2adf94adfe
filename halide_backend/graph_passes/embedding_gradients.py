"""Gradients of embeddings in 16 bits, whose tokens are few beside the rows of the table.

Inductor adds up in float32: a second table of twice the size, which is filled with zeros, added to and rounded. Here
one token of each row that is used stands for it: rows of float32 for the tokens alone are added up, rounded, and stored
in the table of zeros, by each token of a row what the others store, too. The sums are the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from halide_backend.graph_passes.new_node import new_node

_aten, _prims = torch.ops.aten, torch.ops.prims
_MASKED = _aten._unsafe_masked_index_put_accumulate.default
_CHECKED = _aten.index_put.default
_ROUNDED = (torch.bfloat16, torch.float16)

#: Rows of the table for each token, at least: both forms write the result, and the one with a table in float32 three
#: times as much besides, where this one moves about five times the tokens' rows.
_ROWS_OF_A_TOKEN = 2


def add_up_tokens(graph: GraphModule) -> None:
    """Rewrite such scatters of a CPU graph."""
    found = [n for target in (_MASKED, _CHECKED) for n in graph.graph.find_nodes(op="call_function", target=target)]
    for node in found:
        if node.meta["val"].device.type == "cpu" and _fits(node):
            _rewrite(node)
    if found:
        graph.graph.eliminate_dead_code()


def _operands(node: Any) -> tuple[Node, Node | None, Any, Node]:
    """What is added to, the mask if there is one, the indices and the values."""
    if node.target is _MASKED:
        into, mask, indices, values = node.args
        return into, mask, indices, values
    into, indices, values, *_ = node.args
    return into, None, indices, values


def _fits(node: Any) -> bool:
    """Whether rows of few tokens are added to zeros in float32, and nothing but the rounded table is used."""
    if node.target is _CHECKED and node.args[3:] != (True,):
        return False
    into, mask, indices, values = _operands(node)
    if into.target is not _aten.full.default or into.args[1] != 0 or len(indices) != 1 or indices[0] is None:
        return False
    table, index, rows = (each.meta["val"] for each in (into, indices[0], values))
    if not all(isinstance(size, int) for size in (*table.shape, *index.shape, *rows.shape)):
        return False
    if table.dtype != torch.float32 or rows.dtype != torch.float32 or index.dtype not in (torch.int64, torch.int32):
        return False
    if table.dim() < 2 or tuple(rows.shape) != (*index.shape, *table.shape[1:]):
        return False
    if mask is not None and tuple(mask.meta["val"].shape) != (*index.shape, *[1] * (table.dim() - 1)):
        return False
    rounded = all(
        user.target is _prims.convert_element_type.default and user.args[1] in _ROUNDED for user in node.users
    )
    return len(node.users) == 1 and rounded and _ROWS_OF_A_TOKEN * index.numel() <= table.shape[0]


def _rewrite(node: Any) -> None:
    into, mask, indices, values = _operands(node)
    table, index = into.meta["val"], indices[0].meta["val"]
    (rounded,) = node.users
    put, get = (
        (_aten.index_put.default, _aten.index.Tensor)
        if mask is None
        else (_aten._unsafe_index_put.default, _aten._unsafe_index.Tensor)
    )
    tokens, rest = index.numel(), list(table.shape[1:])
    with node.graph.inserting_before(node):
        place = indices[0]
        if mask is not None:
            # Tokens without a row add nothing to the first one.
            zero = _constant(node, _aten.full.default, [], 0, dtype=table.dtype, device=table.device)
            values = new_node(_aten.where.self, mask, values, zero)
            of_token = new_node(_aten.reshape.default, mask, list(index.shape))
            first = _constant(node, _aten.full.default, [], 0, dtype=index.dtype, device=table.device)
            place = new_node(_aten.where.self, of_token, place, first)
        place = new_node(_aten.reshape.default, place, [tokens])
        values = new_node(_aten.reshape.default, values, [tokens, *rest])
        numbers = {"dtype": torch.int64, "device": table.device}
        number = _constant(node, _prims.iota.default, tokens, start=0, step=1, requires_grad=False, **numbers)
        nobody = _constant(node, _aten.full.default, [table.shape[0]], 0, **numbers)
        token = new_node(get, new_node(put, nobody, [place], number), [place])
        zeros = _constant(node, _aten.full.default, [tokens, *rest], 0, dtype=table.dtype, device=table.device)
        sums = new_node(get, new_node(put, zeros, [token], values, True), [token])
        result = new_node(_prims.convert_element_type.default, sums, rounded.args[1])
        empty = _constant(node, _aten.full.default, list(table.shape), 0, dtype=rounded.args[1], device=table.device)
        rounded.replace_all_uses_with(new_node(put, empty, [place], result))


def _constant(node: Node, target: Any, *arguments: Any, **named: Any) -> Node:
    """The call of `target`, which has no tensors, in the graph of `node`."""
    made = node.graph.call_function(target, arguments, named)
    with node.meta["val"].fake_mode:
        made.meta["val"] = target(*arguments, **named)
    return made
