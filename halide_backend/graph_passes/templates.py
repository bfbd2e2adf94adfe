"""Templates, which Inductor renders while it lowers a graph, before it asks any scheduling object.

The code that renders one compares the names of backends: under the name of this one a value of a Triton or C++ template
has no type, and bfloat16 is not computed in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from halide_backend.capture.delegate import own_name
from halide_backend.device_type import DeviceType
from halide_backend.selection import is_selected


@functools.cache
def render_for_own_backend(kind: DeviceType) -> None:
    """Have templates of `kind` rendered for Inductor's own backend; to be called before a graph is lowered."""
    for template in _templates(kind):
        template.generate = _under_own_name(template.generate, kind)


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
