"""`halide_backend.stats()`: sums over records."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import TypeAlias

from halide_backend.build.artifacts import COMPILED, DISK
from halide_backend.kernel_records.record import KernelRecord
from halide_backend.refusals import TEMPLATE

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

#: Counters that are divided by code; `total` has a number for each under (counter, code).
_BY_CODE = ("delegation_reasons", "unfusing_reasons")

#: Numbers by counter, or by counter and code.
Total: TypeAlias = "dict[str | tuple[str, str], float]"


def add(record: KernelRecord, total: Total) -> None:
    """Add to `total` what one record counts for."""
    found: list[tuple[str | tuple[str, str], float]] = [("kernels_loaded", record.loads)]
    delegation, split = record.delegation, record.split_from
    if delegation is not None and delegation.code == TEMPLATE:
        found.append(("delegated_templates", 1))
    elif delegation is not None:
        found += [("delegated_kernels", 1), (("delegation_reasons", delegation.code), 1)]
    elif record.captured:
        found.append(("native_kernels", 1))
    # A group that fell apart is counted with the first of its nodes.
    if split is not None and record.nodes[:1] == split.nodes[:1]:
        found += [("unfused_groups", 1), (("unfusing_reasons", split.reason.code), 1)]
    if record.cache == COMPILED:
        found += [("kernels_compiled", 1), ("cache_misses", 1), ("compile_seconds", record.compile_seconds)]
    elif record.cache == DISK:
        found.append(("cache_hits", 1))
    for name, amount in found:
        total[name] = total.get(name, 0) + amount


def stats(records: Iterable[KernelRecord], before: Total) -> dict[str, object]:
    """All counters over `records` and those that were counted `before`, `median_compile_seconds` over `records`, and
    the reasons of what did not go as planned: the number of kernels or groups for each code.
    """
    total = dict(before)
    seconds = []
    for record in records:
        add(record, total)
        if record.cache == COMPILED:
            seconds.append(record.compile_seconds)
    report: dict[str, object] = {name: total.get(name, 0) for name in NAMES}
    report["median_compile_seconds"] = statistics.median(seconds) if seconds else 0
    for kind in _BY_CODE:
        report[kind] = {key[1]: number for key, number in total.items() if isinstance(key, tuple) and key[0] == kind}
    return report
