"""`torch.cond` and `torch.while_loop` on CUDA, whose conditions a CUDA graph cannot record.

Inductor leaves CUDA graphs out where such an operator has an operand of Triton's, which it tells by the backend's name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.ir import IRNode, get_device_type
from torch._inductor.virtualized import V
from torch.fx import GraphModule
from torch.utils import _pytree

from halide_backend.cache_key import NAME

_OPERATORS = torch.ops.higher_order
#: Of these a graph that is partitioned records what lies around them, but for a condition's.
_CONDITION, _LOOPS = _OPERATORS.cond, (_OPERATORS.while_loop, _OPERATORS.while_loop_stack_output)


class LeaveOutCudaGraphs(CustomGraphModulePass):
    """Has what contains them compiled without CUDA graphs; a pass of the device "cuda".

    `present` is the pass that was there.
    """

    def __init__(self, present: Any) -> None:
        self._present = present
        self._installed = False

    def __call__(self, graph: GraphModule) -> None:
        if self._present is not None:
            self._present(graph)
        if self._installed or config.cuda_backend != NAME:
            return
        if any(node.target in (_CONDITION, *_LOOPS) for node in graph.graph.nodes):
            from torch._inductor.lowering import lowerings

            for operator in (_CONDITION, *_LOOPS):
                lowerings[operator] = _without_cuda_graphs(operator, lowerings[operator])
            self._installed = True

    def uuid(self) -> Any:
        return (NAME, 1, None if self._present is None else self._present.uuid())


def _without_cuda_graphs(operator: Any, lower: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(lower)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        applies = config.cuda_backend == NAME and (operator is _CONDITION or not config.graph_partition)
        operands = (leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, IRNode))
        if applies and any(get_device_type(operand) == "cuda" for operand in operands):
            V.graph.disable_cudagraphs_reason = f"control flow operator: torch.{operator.__name__}."
        return lower(*args, **kwargs)

    return lowered
