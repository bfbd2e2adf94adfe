"""A new call in an FX graph, with what is known of its result."""

from __future__ import annotations

from typing import Any

from torch.fx import Node
from torch.fx.node import map_arg


def new_node(target: Any, *arguments: Any, **named: Any) -> Node:
    """The call of `target`, where its graph inserts nodes now; one of the `arguments` at least is a node of it."""
    graph = next(argument for argument in arguments if isinstance(argument, Node)).graph
    node: Node = graph.call_function(target, arguments, named)
    node.meta["val"] = target(*map_arg(arguments, lambda each: each.meta["val"]), **named)
    return node
