"""Operators that this backend lowers to something else than Inductor does, where it can."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from halide_backend.device_type import CPU, DeviceType
from halide_backend.selection import is_selected


def prefer(operator: Any, lower: Callable[..., Any], kind: DeviceType = CPU) -> None:
    """Let `lower` lower the `operator` in graphs of this backend for devices of this `kind` with a wrapper in Python,
    unless a search is asked for or it returns None; Inductor's lowering does otherwise."""
    from torch._inductor.lowering import lowerings

    if operator in lowerings:
        lowerings[operator] = functools.partial(_lower, lower, kind, lowerings[operator])


def prefers(kind: DeviceType = CPU) -> bool:
    """Whether graphs of this `kind` of device that are compiled now are lowered so."""
    from torch._inductor import config

    in_python = not (config.cpp_wrapper or config.fx_wrapper)
    return in_python and not (config.max_autotune or config.max_autotune_gemm) and is_selected(kind)


def _lower(
    ours: Callable[..., Any], kind: DeviceType, inductors: Callable[..., Any], *arguments: Any, **options: Any
) -> Any:
    found = ours(*arguments, **options) if prefers(kind) else None
    return inductors(*arguments, **options) if found is None else found
