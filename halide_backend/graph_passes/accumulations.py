"""Sums into memory at masked places, in a wider type than float16 or bfloat16.

Inductor adds to such memory in its own type, so every addition rounds: in bfloat16 256 + 1 is 256. Results of eager's
were those of float64, rounded.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

_ACCUMULATE = torch.ops.aten._unsafe_masked_index_put_accumulate.default
_CONVERT = torch.ops.prims.convert_element_type.default
_NARROW = (torch.float16, torch.bfloat16)


def accumulate_in_float32(graph: GraphModule) -> None:
    """Rewrite such sums of a CUDA graph."""
    for node in graph.graph.find_nodes(op="call_function", target=_ACCUMULATE):
        value = node.meta["val"]
        if value.dtype in _NARROW and value.device.type == "cuda":
            _widen(node, value.dtype)


def _widen(node: Node, dtype: torch.dtype) -> None:
    into, mask, indices, values = node.args
    graph = node.graph
    with graph.inserting_before(node):
        node.args = (_converted(into, torch.float32), mask, indices, _converted(values, torch.float32))
    node.meta["val"] = node.meta["val"].to(torch.float32)
    with graph.inserting_after(node):
        narrow = _converted(node, dtype)
    node.replace_all_uses_with(narrow, delete_user_cb=lambda user: user is not narrow)


def _converted(node: Any, dtype: torch.dtype) -> Node:
    converted: Node = node.graph.call_function(_CONVERT, (node, dtype))
    converted.meta["val"] = node.meta["val"].to(dtype)
    return converted
