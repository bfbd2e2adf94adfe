"""Whole tensors are reduced by rows, then over all rows, if something made of the same elements is stored as well.

A kernel stores elements and reduces rows in one walk over memory. It cannot store elements and reduce all of them: the
sum of squares of an update that is stored took another kernel, which read the update, or all that it is made of, again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

from halide_backend.graph_passes.new_node import new_node
from halide_backend.graph_passes.product_sizes import hint

_aten = torch.ops.aten
_CONVERT = torch.ops.prims.convert_element_type.default

#: Reductions of all elements, by what reduces some dimensions in their place.
_OF_DIMENSIONS = {
    _aten.sum.default: _aten.sum.dim_IntList,
    _aten.sum.dim_IntList: _aten.sum.dim_IntList,
    _aten.mean.default: _aten.mean.dim,
    _aten.mean.dim: _aten.mean.dim,
    _aten.amax.default: _aten.amax.default,
    _aten.amin.default: _aten.amin.default,
}

#: Elements of a row, fewest and, of its inner dimensions together, enough; and the fewest rows.
_SHORTEST, _LONG, _ROWS = 64, 256, 16

#: Elements below which another walk over memory takes no longer than another kernel.
_FEW = 1 << 17

_NARROW = (torch.float16, torch.bfloat16)


def reduce_rows_first(graph: GraphModule) -> None:
    """Rewrite such reductions on CPUs."""
    for operator, by_rows in _OF_DIMENSIONS.items():
        for node in graph.graph.find_nodes(op="call_function", target=operator):
            if (inner := _rows(node)) and _is_beside_what_is_stored(node):
                with graph.graph.inserting_before(node):
                    node.replace_all_uses_with(_in_two_steps(node, by_rows, inner))
                graph.graph.erase_node(node)


def _rows(node: Node) -> list[int]:
    """The dimensions of a row of what `node` reduces; [] if it leaves some, or there are no such rows."""
    value = _value(node.args[0])
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if value is None or value.device.type != "cpu" or len(set(dims or range(value.dim()))) != value.dim():
        return []
    if not value.is_contiguous() or math.prod(map(hint, value.shape)) < _FEW:
        return []
    inner, length = list[int](), 1
    for dim in reversed(range(1, value.dim())):
        inner, length = [dim, *inner], length * hint(value.shape[dim])
        if length >= _LONG:
            break
    rows = math.prod(hint(size) for size in value.shape[: value.dim() - len(inner)])
    return inner if length >= _SHORTEST and rows >= _ROWS else []


def _is_beside_what_is_stored(node: Node) -> bool:
    """Whether something is stored that is made, element by element, of what `node` reduces or of what that is made of,
    and needs no result of `node`."""
    reduced, later = node.args[0], _users(node)
    assert isinstance(reduced, Node)
    read, stack = set[Node](), [reduced]
    while stack:
        made = stack.pop()
        if made not in read and _has_elements_of(made, reduced):
            read.add(made)
            stack += made.all_input_nodes if _is_pointwise(made) else []
    with_it, stack = set(read), list(read)
    while stack:
        made = stack.pop()
        if _is_pointwise(made) and any(_stores(user) for user in made.users):
            return True
        new = {user for user in made.users.keys() - with_it - later if _is_pointwise(user)}
        new = {user for user in new if _has_elements_of(user, reduced)}
        with_it |= new
        stack += new
    return False


def _users(node: Node) -> set[Node]:
    """`node`, and all that needs its result."""
    found, stack = {node}, [node]
    while stack:
        new = stack.pop().users.keys() - found
        found |= new
        stack += new
    return found


def _stores(user: Node) -> bool:
    """Whether `user` reads its operand from memory: the graph's results, what they are copied to, a product."""
    return user.op == "output" or user.target is _aten.copy_.default or not _is_inlined(user)


def _is_inlined(user: Node) -> bool:
    value = _value(user)
    reduces = value is not None and user.target in (*_OF_DIMENSIONS, _aten.var_mean.correction, _aten.var.correction)
    return reduces or _is_pointwise(user) or getattr(user.target, "is_view", False)


def _is_pointwise(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and torch.Tag.pointwise in node.target.tags


def _has_elements_of(node: Node, other: Node) -> bool:
    """Whether they have the same elements in the same order of memory."""
    mine, its = _value(node), _value(other)
    if mine is None or its is None or mine.dim() != its.dim() or not mine.is_contiguous():
        return False
    return all(statically_known_true(a == b) for a, b in zip(mine.shape, its.shape))


def _in_two_steps(node: Node, operator: Any, inner: list[int]) -> Node:
    reduced, dtype = node.args[0], node.meta["val"].dtype
    # Narrow numbers are added up in float32 and rounded once, as by Inductor in one step.
    adds = operator in (_aten.sum.dim_IntList, _aten.mean.dim)
    wide = {"dtype": torch.float32 if dtype in _NARROW else dtype} if adds else {}
    keepdim = node.args[2] if len(node.args) > 2 else node.kwargs.get("keepdim", False)
    of_rows = new_node(operator, reduced, inner, True, **wide)
    every = list(range(of_rows.meta["val"].dim()))
    result = new_node(operator, of_rows, every, keepdim, **wide)
    return result if result.meta["val"].dtype == dtype else new_node(_CONVERT, result, dtype)


def _value(node: Any) -> torch.Tensor | None:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value if isinstance(value, torch.Tensor) else None
