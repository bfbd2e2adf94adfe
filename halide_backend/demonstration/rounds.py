"""Alternating rounds A B C A B C ...: a slow moment of the machine hits every contestant."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from halide_backend.demonstration.figures import Times

WARM_UP_ROUNDS = 2
#: Fewest and most rounds: quartiles need a few, and a step of a few microseconds need not fill the
#: whole budget.
FEWEST, MOST = 7, 400


def alternate(steps: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, Times]:
    """Time every step in turn for about `seconds` in all; milliseconds by name."""
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(WARM_UP_ROUNDS):
        for step in steps.values():
            step()
    end = time.perf_counter() + seconds
    for number in range(MOST):
        if number >= FEWEST and time.perf_counter() > end:
            break
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            samples[name].append((time.perf_counter() - start) * 1e3)
    return {name: Times.of(values) for name, values in samples.items()}
