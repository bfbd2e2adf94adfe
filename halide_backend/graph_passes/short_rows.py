"""Reductions of a few elements that are needed again along them stay reductions on a GPU, where Inductor writes out
their terms (`torch._inductor.config.unroll_reductions_threshold`).

A softmax of rows of 5 numbers was a kernel for maxima and sums, and another one in which each element reads those of
its row. As reductions they are one kernel, a thread or two for a row, which is in registers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from halide_backend.device_type import CUDA
from halide_backend.selection import is_selected

#: Elements of a row that other threads read with it in any case.
_PAIR = 2


@functools.cache
def keep_short_reductions() -> None:
    """Let Inductor lower such reductions so, in graphs of this backend."""
    from torch._inductor import inductor_prims
    from torch._inductor.lowering import lowerings

    aten = torch.ops.aten
    operators = [aten.amax.default, aten.amin.default, aten.mean.dim, aten.sum.dim_IntList]
    operators += [aten.var.correction, aten.var_mean.correction]
    if softmax := getattr(inductor_prims, "prepare_softmax_online", None):
        operators.append(softmax)
    for operator in operators:
        lowerings[operator] = functools.partial(_lower, lowerings[operator])


def _lower(inductors: Callable[..., Any], x: Any, *arguments: Any, **options: Any) -> Any:
    from torch._inductor import config
    from torch._inductor.virtualized import V

    device = x.get_device()
    on_gpu = device is not None and device.type == CUDA.name and is_selected(CUDA)
    kept = on_gpu and is_needed_along(V.graph.current_node)
    with config.patch(unroll_reductions_threshold=1) if kept else nullcontext():
        return inductors(x, *arguments, **options)


def is_needed_along(node: torch.fx.Node | None) -> bool:
    """Whether `node` reduces one dimension of some elements and keeps it, and what is made of its results is broadcast
    along that: a sum that is kept for its shape alone has terms."""
    if node is None or len(node.args) < 2:
        return False
    operand, result = _value(node.args[0]), _value(node)
    if operand is None or result is None:
        return False
    dimensions = node.args[1] if isinstance(node.args[1], list | tuple) else [node.args[1]]
    # None and no dimension stand for all of them; a tensor without any has the dimensions 0 and -1.
    if len(dimensions) != 1 or dimensions[0] is None or not operand.dim() or result.dim() != operand.dim():
        return False
    (dimension,) = dimensions
    size = operand.shape[dimension]
    return isinstance(size, int) and size > _PAIR and _is_broadcast(node, dimension % operand.dim(), operand)


def _is_broadcast(node: torch.fx.Node, dimension: int, operand: torch.Tensor) -> bool:
    """Whether something that is made of `node` is as long as `operand` along `dimension` again."""
    seen, stack = {node}, [node]
    while stack:
        for user in stack.pop().users.keys() - seen:
            seen.add(user)
            found = _value(user)
            if found is None or found.dim() != operand.dim():
                continue
            if found.shape[dimension] == operand.shape[dimension]:
                return True
            stack.append(user)
    return False


def _value(node: Any) -> torch.Tensor | None:
    """What a node of the graph makes, or the first of it, as far as it is known."""
    found = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    found = found[0] if isinstance(found, list | tuple) and found else found
    return found if isinstance(found, torch.Tensor) else None
