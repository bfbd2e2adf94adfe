"""Counters of what this process compiled, loaded and delegated.

The same numbers appear in `torch._dynamo.utils.counters["halide_backend"]` as soon as torch's compiler is
imported; this module itself imports no torch, so that every stage may count.
"""

from __future__ import annotations

import statistics
import sys
import threading
from collections import Counter

_lock = threading.Lock()
_counts: dict[str, float] = {}
_delegations: Counter[str] = Counter()
_refusals: Counter[str] = Counter()
_durations: list[float] = []

#: Every counter, in the order `stats()` reports them.
NAMES = (
    "native_kernels",
    "delegated_kernels",
    "delegated_templates",
    "unfused_groups",
    "kernels_compiled",
    "kernels_loaded",
    "cache_hits",
    "cache_misses",
    "compile_seconds",
)


def count(name: str, amount: float = 1) -> None:
    """Add `amount` to the counter `name` (one of `NAMES`)."""
    if name not in NAMES:
        raise KeyError(f"no counter named {name!r}; the counters are {', '.join(NAMES)}")
    with _lock:
        _counts[name] = _counts.get(name, 0) + amount
    _mirror(name, amount)


def delegated(code: str) -> None:
    """Record one loop kernel that was left to Inductor's own backend, and the code of the reason."""
    count("delegated_kernels")
    with _lock:
        _delegations[code] += 1
    _mirror(f"delegated: {code}", 1)


def unfused(code: str) -> None:
    """Record one group of fused nodes that are compiled node by node, and the code of the reason."""
    count("unfused_groups")
    with _lock:
        _refusals[code] += 1


def compiled(seconds: float) -> None:
    """Record one kernel that a worker built in `seconds`."""
    count("kernels_compiled")
    count("compile_seconds", seconds)
    with _lock:
        _durations.append(seconds)


def stats() -> dict[str, object]:
    """All counters, `median_compile_seconds` of one kernel, and the reasons of what did not go as planned.

    `delegation_reasons` and `unfusing_reasons` map the code of a reason to the number of kernels or groups.
    """
    with _lock:
        report: dict[str, object] = {name: _counts.get(name, 0) for name in NAMES}
        report["median_compile_seconds"] = statistics.median(_durations) if _durations else 0
        report["delegation_reasons"] = dict(_delegations)
        report["unfusing_reasons"] = dict(_refusals)
    return report


def reset() -> None:
    """Set every counter to zero."""
    with _lock:
        _counts.clear()
        _delegations.clear()
        _refusals.clear()
        _durations.clear()
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        dynamo.counters["halide_backend"].clear()


def _mirror(name: str, amount: float) -> None:
    # Only looked up, never imported: a compile worker has no torch.
    dynamo = sys.modules.get("torch._dynamo.utils")
    if dynamo is not None:
        dynamo.counters["halide_backend"][name] += amount
