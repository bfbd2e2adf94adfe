"""Flex attention on a CPU, which Inductor's C++ template computes.

The template is rendered while the graph is lowered, before any scheduling object is asked, by code that has no types of
values unless the CPU's backend is called "cpp".
"""

from __future__ import annotations

from typing import Any

from torch._higher_order_ops.flex_attention import flex_attention
from torch._inductor import config
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.fx import GraphModule

from halide_backend.cache_key import NAME


class LowerFlexAttention(CustomGraphModulePass):
    """Has flex attention lowered for Inductor's own backend; a pass of the device, which runs before its graphs are.

    `present` is the pass that was there.
    """

    def __init__(self, present: Any) -> None:
        self._present = present
        self._registered = False

    def __call__(self, graph: GraphModule) -> None:
        if self._present is not None:
            self._present(graph)
        if config.cpu_backend != NAME or self._registered:
            return
        if any(node.target is flex_attention for node in graph.graph.nodes):
            _register()
            self._registered = True

    def uuid(self) -> Any:
        return (NAME, 1, None if self._present is None else self._present.uuid())


def _register() -> None:
    from torch._inductor.lowering import lowerings, register_lowering

    lower = lowerings[flex_attention]

    @register_lowering(flex_attention, type_promotion_kind=None)  # type: ignore[untyped-decorator]
    def lower_by_template(*args: Any, **kwargs: Any) -> Any:
        if config.cpu_backend != NAME:
            return lower(*args, **kwargs)
        with config.patch(cpu_backend="cpp"):
            return lower(*args, **kwargs)
