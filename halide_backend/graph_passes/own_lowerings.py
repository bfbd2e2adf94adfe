"""Operators that this backend lowers to something else than Inductor does, where it can."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from halide_backend.device_type import CPU
from halide_backend.selection import is_selected


def prefer(operator: Any, lower: Callable[..., Any]) -> None:
    """Let `lower` lower the `operator` on a CPU in graphs of this backend with a wrapper in Python, unless a search is
    asked for or it returns None; Inductor's lowering does otherwise."""
    from torch._inductor.lowering import lowerings

    if operator in lowerings:
        lowerings[operator] = functools.partial(_lower, lower, lowerings[operator])


def prefers() -> bool:
    """Whether graphs of a CPU that are compiled now are lowered so."""
    from torch._inductor import config

    in_python = not (config.cpp_wrapper or config.fx_wrapper)
    return in_python and not (config.max_autotune or config.max_autotune_gemm) and is_selected(CPU)


def _lower(ours: Callable[..., Any], inductors: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    found = ours(*arguments, **options) if prefers() else None
    return inductors(*arguments, **options) if found is None else found
