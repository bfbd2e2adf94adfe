"""How long planning takes: the kernels of tests/golden, from program to text, without compiling or a GPU.

    python benchmarks/planning_time.py [--only NAME ...] [--json FILE]

Each case is captured four times, as when a user's function is compiled for the first time: with sympy's caches and ours
empty before it. Of the CPU times that planning a kernel took, the first, which imports the rules, is left out, and the
shortest of the others counts. Printed in milliseconds for each target: median, mean, and the kernels that take longest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "golden"))

from captured_kernels import captured_kernels  # noqa: E402
from golden_cases import CASES, TARGETS, Case  # noqa: E402
from sympy.core.cache import clear_cache  # noqa: E402

from halide_backend.bench.provenance import provenance  # noqa: E402
from halide_backend.codegen.planned_kernel import PlannedKernel  # noqa: E402
from halide_backend.program import access, index, store_layout  # noqa: E402
from halide_backend.schedules import choice  # noqa: E402

ROUNDS = 4
#: What planning keeps of other kernels.
KEPT = (access.is_contiguous, access.in_chunks, access.first_word, index.expanded, store_layout._layout)


def samples(case: Case, target: str) -> list[list[float]]:
    """Milliseconds of each time, of each kernel of a case."""
    plan_kernel = choice.plan_kernel
    times: list[float] = []

    def timed(*arguments: Any, **options: Any) -> PlannedKernel:
        begin = time.thread_time()
        planned = plan_kernel(*arguments, **options)
        times.append(1e3 * (time.thread_time() - begin))
        return planned

    rounds = []
    with mock.patch.object(choice, "plan_kernel", timed):
        for _ in range(ROUNDS):
            clear_cache()
            for kept in KEPT:
                kept.cache_clear()
            times.clear()
            captured_kernels(case.function, case.arguments(), TARGETS[target], case.dynamic)
            rounds.append(list(times))
    return [list(kernel) for kernel in zip(*rounds, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[case.name for case in CASES])
    parser.add_argument("--json", type=Path, help="also write every sample to this file")
    options = parser.parse_args()
    rows: dict[str, dict[str, list[float]]] = {target: {} for target in TARGETS}
    for case in CASES:
        if options.only and case.name not in options.only:
            continue
        for target in case.targets:
            for number, times in enumerate(samples(case, target), start=1):
                rows[target][f"{case.name} {number}"] = times
    for target, found in rows.items():
        if not found:
            continue
        shortest = {name: min(times[1:]) for name, times in found.items()}
        longest = sorted(shortest, key=lambda name: -shortest[name])[:8]
        print(
            f"{target}: {len(found)} kernels, median {statistics.median(shortest.values()):.2f}, "
            f"mean {statistics.mean(shortest.values()):.2f}, "
            f"longest {', '.join(f'{name} {shortest[name]:.2f}' for name in longest)}"
        )
    if options.json:
        document = {**provenance("cpu"), "milliseconds": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
