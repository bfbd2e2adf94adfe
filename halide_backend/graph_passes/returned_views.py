"""Results that are values in other sizes: stored before they are seen so, where Inductor cannot compare the sizes.

A group norm's gradient is computed for (n, 8, c // 8, pixels) and returned as (n, c, height, width). With dynamic sizes
Inductor does not know that c is 8 * (c // 8), although the graph has a guard for that. It then writes the result of the
loops, and a second time what it takes for another order of it. Of memory that is there, and contiguous, it makes a view
without a look at the sizes.
"""

from __future__ import annotations

import sympy
import torch
from torch._inductor import inductor_prims
from torch.fx import GraphModule, Node

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
        value = source.meta["val"]
        if _elements(value) == _elements(view.meta["val"]) or not value.is_contiguous():
            continue
        order = list(range(value.dim(), 0, -1))  # the strides' order is what counts
        with graph.graph.inserting_before(view):
            stored = graph.graph.call_function(inductor_prims.force_stride_order, (source, order))
        stored.meta["val"] = value
        view.replace_input_with(source, stored)


def _is_computed(node: Node) -> bool:
    return (
        node.op == "call_function"
        and isinstance(node.meta.get("val"), torch.Tensor)
        and node.target not in _WITHOUT_LOOPS
    )


def _elements(value: torch.Tensor) -> sympy.Expr:
    """The number of elements as it is written: what guards say of it, an index does not tell."""
    sizes = (size.node.expr if isinstance(size, torch.SymInt) else size for size in value.shape)
    return sympy.expand(sympy.prod(sizes))
