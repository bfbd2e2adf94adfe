"""Inductor's FX wrapper: a graph of allocations, views, calls of ATen, and launches of this backend's kernels.

It is made to be translated (halide_backend/packages/bytecode), not to be run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch._inductor.codegen.wrapper import WrapperLine
from torch._inductor.virtualized import V

from halide_backend.capture.bound_pipeline import BoundPipeline
from halide_backend.device_type import DeviceType
from halide_backend.errors import PackageError
from halide_backend.selection import is_selected

#: Where a node of `launch_kernel` has its pipelines, and a graph the names that its constants have in the model.
PIPELINES, NAMES = "halide_backend_pipelines", "halide_backend_names"


def launch_kernel(name: str, *arguments: torch.Tensor | int | torch.SymInt) -> None:
    """What a node of the graph calls: one launch of the kernel `name`, whose pipelines are in the node's `meta`.

    It does nothing, and Inductor calls it when it adds the node, to learn what it returns.
    """


@dataclass(frozen=True)
class FxLaunchLine(WrapperLine):
    """One launch of `kernel`; `arguments` are names of the wrapper's tensors, and sizes."""

    kernel: str
    arguments: tuple[str | sympy.Expr, ...]
    pipelines: tuple[BoundPipeline, ...]

    def codegen_fx(self, converter: Any) -> Callable[[WrapperLine], None]:
        """What adds the node: Inductor calls it when all lines exist and memory is planned."""

        def add(line: WrapperLine) -> None:
            tensors = converter.buffer_to_node
            values = [tensors[a] if isinstance(a, str) else converter._generate_sym_node(a) for a in self.arguments]
            node = converter.gm.graph.call_function(launch_kernel, (self.kernel, *values))
            node.meta[PIPELINES] = self.pipelines

        return add


def with_launches(wrapper: Any, kind: DeviceType) -> Any:
    """`wrapper`, a class that Inductor makes FX wrappers of, or one that extends it while this backend is selected for
    devices of the type `kind`."""

    class LaunchingWrapper(wrapper):
        """An FX wrapper whose graph says what its constants are called in the model.

        Raises (when the graph is made):
            PackageError: a buffer begins elsewhere than at the first element of its tensor, which Inductor's FX wrapper
                adds to the offsets of views, and its other wrappers do not.
        """

        @classmethod
        def create(cls, *arguments: Any, **named: Any) -> Any:
            return super().create(*arguments, **named) if is_selected(kind) else wrapper.create(*arguments, **named)

        def compile_graph(self, gm: torch.fx.GraphModule) -> Any:
            for buffer in V.graph.buffers:
                if getattr(buffer.layout, "offset", 0) != 0:
                    raise PackageError("it has an offset of its own", where=f"FX wrapper, buffer {buffer.get_name()}")
            known = {**V.graph.allocated_constant_name, **V.graph.dynamo_flat_name_to_original_fqn}
            gm.meta[NAMES] = {name: known[name] for name in V.graph.constants}
            return super().compile_graph(gm)

    return LaunchingWrapper
