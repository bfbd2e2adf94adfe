"""Results that are values in other sizes: stored before they are seen so, where Inductor cannot compare the sizes.

A group norm's gradient is computed for (n, 8, c // 8, pixels) and returned as (n, c, height, width). With dynamic sizes
Inductor does not know that c is 8 * (c // 8), although the graph has a guard for that. It then writes the result of the
loops, and a second time what it takes for another order of it. Of memory that is there, and contiguous, it makes a view
without a look at the sizes. A norm in channels-last lies as (n, pixels, 8, c // 8), which is contiguous.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy
import torch
from torch._inductor import inductor_prims
from torch.fx import GraphModule, Node

from halide_backend.graph_passes.new_node import new_node
from halide_backend.graph_passes.product_sizes import hint

_aten = torch.ops.aten
_VIEWS = (_aten.view.default, _aten.reshape.default)

#: What reads memory that is there, or is the library's result, which is stored in any case.
_WITHOUT_LOOPS = (*_VIEWS, _aten.permute.default, _aten.expand.default, _aten.slice.Tensor, _aten.squeeze.dims)


def store_before_views(graph: GraphModule) -> None:
    """Store what is returned in other sizes, if these are symbols that Inductor cannot compare."""
    (output,) = graph.graph.find_nodes(op="output")
    for view in dict.fromkeys(output.all_input_nodes):
        if view.target not in _VIEWS or not isinstance(source := view.args[0], Node) or not _is_computed(source):
            continue
        value, seen = source.meta["val"], view.meta["val"]
        if _elements(value.shape) == _elements(_asked(view)):
            continue
        with graph.graph.inserting_before(view):
            if value.is_contiguous():
                view.replace_input_with(source, _stored(source))
            elif not seen.is_contiguous():  # so it is the same memory: what a view has to copy is contiguous
                _store_in_order(source, view)


def _stored(source: Node) -> Node:
    """`source` as contiguous memory."""
    order = list(range(source.meta["val"].dim(), 0, -1))  # the strides' order is what counts
    return new_node(inductor_prims.force_stride_order, source, order)


def _store_in_order(source: Node, view: Node) -> None:
    """Store `source` as it lies in memory, where `view` of it lies in the same order, if neither has gaps."""
    inner, outer = (_outermost_first(node.meta["val"]) for node in (source, view))
    sizes = view.args[1]
    if not inner or not outer or not isinstance(sizes, list | tuple):
        return
    stored = _stored(new_node(_aten.permute.default, source, inner))
    flat = new_node(_aten.reshape.default, stored, [sizes[dim] for dim in outer])
    found = new_node(_aten.permute.default, flat, [outer.index(dim) for dim in range(len(outer))])
    view.replace_all_uses_with(found)
    view.graph.erase_node(view)


def _outermost_first(value: torch.Tensor) -> list[int]:
    """The dimensions in the order in which they lie in memory, [] if there are gaps between its elements."""
    order = sorted(range(value.dim()), key=lambda dim: -hint(value.stride(dim)))
    return order if value.permute(order).is_contiguous() else []


def _is_computed(node: Node) -> bool:
    return (
        node.op == "call_function"
        and isinstance(node.meta.get("val"), torch.Tensor)
        and node.target not in _WITHOUT_LOOPS
    )


def _asked(view: Node) -> Iterable[Any]:
    """The sizes that `view` is told, which are what Inductor sees: those of its value may be others that are equal."""
    sizes, seen = view.args[1], view.meta["val"]
    if not isinstance(sizes, list | tuple) or -1 in sizes:
        return tuple(seen.shape)
    return [size.meta["val"] if isinstance(size, Node) else size for size in sizes]


def _elements(sizes: Iterable[Any]) -> sympy.Expr:
    """The number of elements as it is written: what guards say of it, an index does not tell."""
    return sympy.expand(sympy.prod(size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes))
