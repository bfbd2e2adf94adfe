"""Seconds of first calls: cases of the suite, compiled once for this backend and once for Inductor's own.

    python benchmarks/first_calls.py [--device cuda] [--against triton] [--cases 80] [--sizes large] [--json FILE]

One process compiles all of them, as a user's does, with as many compile workers as either backend starts by itself and
with empty stores. Each side compiles a function that is no case before, which starts its workers and imports what it
needs (`start`). Who is first alternates from case to case, since Dynamo keeps some things from the first to the second.
The sample are the cases of both halves whose names have the lowest SHA-256 digests; nothing but sums and medians is
printed, so that no held-back case is looked at. Results are compared with eager's.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

BACKEND = "halide_backend"


def sample(device: str, sizes: tuple[str, ...], dtypes: tuple[str, ...], count: int) -> list[Any]:
    """The cases of the suite with the lowest digests, in the order of these."""
    from halide_backend.bench.case import Selection, cases
    from halide_backend.bench.kernels import GROUPS

    chosen = cases(GROUPS, device, Selection(sizes=sizes, dtypes=dtypes))
    return sorted(chosen, key=lambda case: hashlib.sha256(case.name.encode()).hexdigest())[:count]


def first_call(compiled: Callable[..., Any], arguments: tuple[Any, ...], device: str) -> tuple[float, Any]:
    """Seconds of a call, and its result."""
    import torch

    copies = tuple(each.clone(memory_format=torch.preserve_format) for each in arguments)
    _wait(device)
    begin = time.perf_counter()
    got = compiled(*copies)
    _wait(device)
    return time.perf_counter() - begin, got


def measured(case: Any, contestants: Any, ours_first: bool) -> tuple[dict[str, float], str]:
    """Seconds by backend of the first call of a case, and what is wrong with the result of this one."""
    import torch

    from halide_backend.bench.agreement import disagreement, widened

    torch.manual_seed(0)
    arguments = case.arguments()
    seconds, wrong = {}, ""
    for name in contestants.names(ours_first=ours_first):
        seconds[name], got = first_call(contestants.compile(name, case.kernel.function), arguments, case.device)
        if name == BACKEND and case.kernel.compared:
            wrong = disagreement(got, case.kernel.function(*widened(arguments)))
        del got
    return seconds, wrong


def run(options: argparse.Namespace) -> dict[str, Any]:
    """All seconds, and what they belong to."""
    import torch

    from halide_backend.bench.contestants import Contestants
    from halide_backend.bench.provenance import provenance

    contestants = Contestants((options.against,))
    chosen = sample(options.device, tuple(options.sizes), tuple(options.dtypes), options.cases)
    x = torch.randn(1000, device=options.device)
    start = {
        name: first_call(contestants.compile(name, lambda x: torch.relu(x) + 1), (x,), options.device)[0]
        for name in contestants.names(ours_first=True)
    }
    rows: dict[str, dict[str, float]] = {}
    wrong: dict[str, str] = {}
    begin = time.perf_counter()
    for number, case in enumerate(chosen):
        if time.perf_counter() - begin > options.seconds:
            break
        rows[case.name], wrong[case.name] = measured(case, contestants, ours_first=number % 2 == 0)
        gc.collect()
    return {
        "machine": provenance(options.device),
        "against": options.against,
        "start": start,
        "seconds": rows,
        "wrong": {name: what for name, what in wrong.items() if what},
    }


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--against", default="triton", help="cpp on a CPU")
    parser.add_argument("--cases", type=int, default=80)
    parser.add_argument("--sizes", nargs="+", default=["large"])
    parser.add_argument("--dtypes", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after this time")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as stores:
        for variable in ("HALIDE_BACKEND_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            os.environ[variable] = os.path.join(stores, variable)
        found = run(options)
    rows = list(found["seconds"].values())
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    ours, theirs = ([row[name] for row in rows] for name in (BACKEND, options.against))
    print(f"{len(rows)} cases: {BACKEND} {sum(ours):.1f} s, {options.against} {sum(theirs):.1f} s", end="; ")
    print(f"{sum(ours) / sum(theirs):.3f}, median of the cases {statistics.median(map(_ratio, ours, theirs)):.3f}")
    print(f"{len(found['wrong'])} are wrong")
    print(f"start: {', '.join(f'{name} {seconds:.2f} s' for name, seconds in found['start'].items())}")


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs


if __name__ == "__main__":
    main()
