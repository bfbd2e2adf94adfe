"""Templates, which Inductor renders while it lowers a graph, before it asks any scheduling object.

The code that renders one compares the names of backends: under the name of this one a value of a Triton or C++ template
has no type, and bfloat16 is not computed in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch.fx import GraphModule

from halide_backend.cache_key import NAME
from halide_backend.capture.delegate import own_name
from halide_backend.device_type import DeviceType
from halide_backend.selection import is_selected


class RenderTemplates(CustomGraphModulePass):
    """Has templates rendered for Inductor's own backend; a pass of `kind`, which runs before its graphs are lowered.

    `present` is the pass that was there.
    """

    def __init__(self, kind: DeviceType, present: Any) -> None:
        self._kind = kind
        self._present = present
        self._installed = False

    def __call__(self, graph: GraphModule) -> None:
        if self._present is not None:
            self._present(graph)
        if not self._installed and is_selected(self._kind):
            for template in _templates(self._kind):
                template.generate = _under_own_name(template.generate, self._kind)
            self._installed = True

    def uuid(self) -> Any:
        return (NAME, 2, None if self._present is None else self._present.uuid())


def _templates(kind: DeviceType) -> tuple[Any, ...]:
    """The classes of templates for `kind`; they import all of Inductor's lowering, which imports them as well."""
    if kind.on_host:
        from torch._inductor.codegen.cpp_template import CppTemplate

        return (CppTemplate,)
    from torch._inductor.codegen.cutedsl.cutedsl_template import CuteDSLTemplate
    from torch._inductor.select_algorithm import TritonTemplate

    return TritonTemplate, CuteDSLTemplate


def _under_own_name(generate: Callable[..., Any], kind: DeviceType) -> Callable[..., Any]:
    @functools.wraps(generate)
    def generate_under_own_name(*args: Any, **kwargs: Any) -> Any:
        if not is_selected(kind):
            return generate(*args, **kwargs)
        with own_name(kind):
            return generate(*args, **kwargs)

    return generate_under_own_name
