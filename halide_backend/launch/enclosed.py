"""Launches of a device whose owner wants something done before and after each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halide_backend.device_type import AroundLaunch


def enclosed(kernel: Callable[..., None], around_launch: AroundLaunch) -> Callable[..., None]:
    """`kernel`, which runs inside of `around_launch(*arguments)` whenever it is called with `arguments`."""

    def launch(*arguments: Any) -> None:
        with around_launch(*arguments):
            kernel(*arguments)

    return launch
