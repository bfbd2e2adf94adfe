"""Attention of float32 on a CPU as a kernel of this backend where that is faster (docs/design/products.md).

ATen's operators multiply by MKL.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._inductor import config as inductor_config
from torch.fx import GraphModule, Node

from halide_backend import config
from halide_backend.graph_passes.attention_call import (
    ATTENTION,
    FLASH,
    FLASH_BACKWARD,
    GRADIENTS,
    WITH_LOGSUMEXP,
    install_lowerings,
    lanes,
)
from halide_backend.products.attention import AttentionWork
from halide_backend.products.choice import Choice


def compute_attention(graph: GraphModule) -> None:
    """Rewrite attention, and its gradients, whose kernels are faster than ATen's operators."""
    choice = Choice.of_this_process()
    # Code of a C++ wrapper may be run by a process without this package.
    if not choice.may_attend() or inductor_config.cpp_wrapper:
        return
    install_lowerings()
    for operator, rewrite in ((FLASH, _rewrite_forward), (FLASH_BACKWARD, _rewrite_backward)):
        for node in graph.graph.find_nodes(op="call_function", target=operator):
            attention = _attention(node)
            if attention is not None and choice.attends(attention, lanes()):
                rewrite(graph, node)


def _attention(node: Node) -> AttentionWork | None:
    """What `node` computes, or differentiates; None if there is no kernel for that."""
    given = _arguments(node)
    query, key, value = (given[name].meta["val"] for name in ("query", "key", "value"))
    tensors = [each.meta["val"] for each in given.values() if isinstance(each, Node)]
    sizes = [size for each in tensors for size in (*each.shape, *each.stride())]
    if given["dropout_p"] or not all(isinstance(size, int) for size in sizes):
        return None
    if any(each.dtype != torch.float32 or not each.numel() for each in tensors):
        return None
    (batch, heads, queries, depth), keys = query.shape, key.shape[2]
    if not all(each.shape == (batch, heads, keys, depth) for each in (key, value)):
        return None
    return AttentionWork(batch * heads, queries, keys, depth, bool(given["is_causal"]))


def _arguments(node: Node) -> dict[str, Any]:
    """By the names of the operator's schema; None where it is not given."""
    schema = node.target._schema.arguments
    names = [argument.name for argument in schema]
    return {**dict.fromkeys(names), **dict(zip(names, node.args)), **node.kwargs}


def _settings(given: dict[str, Any]) -> tuple[Any, ...]:
    """The last arguments of this backend's operators: mask, causality, scale and target."""
    scale = given["scale"]
    scale = 1 / math.sqrt(given["query"].meta["val"].shape[3]) if scale is None else scale
    return given["attn_mask"], bool(given["is_causal"]), float(scale), config.target


def _rewrite_forward(graph: GraphModule, node: Node) -> None:
    given = _arguments(node)
    operands = (given["query"], given["key"], given["value"], *_settings(given))
    if any(user.args[1] != 0 for user in node.users):
        _replace(graph, node, WITH_LOGSUMEXP, operands)
        return
    with graph.graph.inserting_before(node):
        result = graph.graph.call_function(ATTENTION, operands)
    for user in list(node.users):
        result.meta.update(user.meta)
        user.replace_all_uses_with(result)
        graph.graph.erase_node(user)
    graph.graph.erase_node(node)


def _rewrite_backward(graph: GraphModule, node: Node) -> None:
    given = _arguments(node)
    names = ("grad_out", "query", "key", "value", "out", "logsumexp")
    _replace(graph, node, GRADIENTS, (*(given[name] for name in names), *_settings(given)))


def _replace(graph: GraphModule, node: Node, operator: Any, operands: tuple[Any, ...]) -> None:
    with graph.graph.inserting_before(node):
        result = graph.graph.call_function(operator, operands)
    result.meta.update(node.meta)
    node.replace_all_uses_with(result)
    graph.graph.erase_node(node)
