"""`torch.cond` and `torch.while_loop` on CUDA, whose conditions a CUDA graph cannot record.

Inductor leaves CUDA graphs out where such an operator has an operand of Triton's, which it tells by the backend's name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.ir import IRNode, get_device_type
from torch._inductor.virtualized import V
from torch.fx import GraphModule
from torch.utils import _pytree

from halide_backend.cache_key import NAME

_OPERATORS = torch.ops.higher_order
#: Of these a graph that is partitioned records what lies around them, but for a condition's.
_CONDITION, _LOOPS = _OPERATORS.cond, (_OPERATORS.while_loop, _OPERATORS.while_loop_stack_output)


def leave_out_cuda_graphs(graph: GraphModule) -> None:
    """Have a CUDA graph that contains them compiled without CUDA graphs."""
    if any(node.target in (_CONDITION, *_LOOPS) for node in graph.graph.nodes):
        _install_lowerings()


@functools.cache
def _install_lowerings() -> None:
    from torch._inductor.lowering import lowerings

    for operator in (_CONDITION, *_LOOPS):
        lowerings[operator] = _without_cuda_graphs(operator, lowerings[operator])


def _without_cuda_graphs(operator: Any, lower: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(lower)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        applies = config.cuda_backend == NAME and (operator is _CONDITION or not config.graph_partition)
        operands = (leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, IRNode))
        if applies and any(get_device_type(operand) == "cuda" for operand in operands):
            V.graph.disable_cudagraphs_reason = f"control flow operator: torch.{operator.__name__}."
        return lower(*args, **kwargs)

    return lowered
