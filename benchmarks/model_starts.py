"""First calls of models on a CPU: this backend's seconds over those of Inductor's C++ backend.

    python benchmarks/model_starts.py [--only bert gpt2 ...] [--dtypes float32] [--modes training] [--rounds N]
        [--out results.json]

The models of `cpu_models.py`. Every figure is the first step of a fresh process, Dynamo and Inductor included, imports
and one small compiled function before it not; *cold* without caches, *second* with those that the cold process left.
The backends take turns, and every other round begins with the other one. A child checks its results against float64,
whose kernels its code has (of a second process, whose code comes from a cache, whose ran), and whether it found its
graphs in Inductor's cache. Ratios are of the rounds' lowest times; below 1 this backend is faster.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BACKENDS = ("halide_backend", "cpp")
STARTS = ("cold", "second")


def start(name: str, dtype_name: str, training: bool, backend: str) -> dict[str, Any]:
    """Seconds of the first step of this process, and what it was."""
    import cpu_models
    import torch
    from torch._dynamo.utils import counters

    from halide_backend.inspection.compiled import compile_for, kernels_run

    # Importing takes seconds and is the same for either backend.
    importlib.import_module("torch._inductor.compile_fx")
    dtype = getattr(torch, dtype_name)
    model, inputs, wanted = cpu_models.prepared(name, dtype, training)
    begin = time.perf_counter()
    compile_for(backend, lambda x: torch.relu(x) + 1, caches=True).call(torch.randn(1000))
    small = time.perf_counter() - begin
    counters.clear()
    compiled = compile_for(backend, model, caches=True)
    step = cpu_models.step_of(compiled.call, model, inputs, training)
    begin = time.perf_counter()
    step()
    seconds = time.perf_counter() - begin
    found = dict(counters["inductor"])
    eager = cpu_models.step_of(model, model, inputs, training)
    state = copy.deepcopy(model.state_dict())
    errors = []
    for each in (step, eager):
        model.load_state_dict(state)
        errors.append(cpu_models.errors_of(cpu_models.values(each, model, training), wanted))
    return {
        "seconds": seconds,
        "seconds_of_small": small,
        "errors": errors[0],
        "right": cpu_models.is_right(*errors, dtype),
        "kernels": dict(compiled.kernels()),
        "ran": dict(kernels_run(step)),
        "graphs_from_cache": found.get("fxgraph_cache_hit", 0),
        "graphs_compiled": found.get("fxgraph_cache_miss", 0),
    }


def check(found: dict[str, Any], backend: str, cold: bool) -> None:
    """Make sure that a start is what it is called.

    Raises:
        RuntimeError: it compiled or ran another backend's kernels, or did not use the caches as it should.
    """
    others = [each for each in found["kernels"] if each != backend]
    ours_ran = found["ran"].get("halide_backend", 0) > 0
    if others or ours_ran != (backend == "halide_backend"):
        raise RuntimeError(f"{backend}: kernels of {others}, in a profile {found['ran']}")
    if cold and (found["graphs_from_cache"] or not found["kernels"]):
        raise RuntimeError(f"{backend}: {found['graphs_from_cache']} graphs of a cold process are from a cache")
    if not cold and (found["graphs_compiled"] or not found["graphs_from_cache"]):
        raise RuntimeError(f"{backend}: {found['graphs_compiled']} graphs were compiled in a second process")


def child(name: str, dtype: str, mode: str, backend: str, caches: Path, threads: int) -> dict[str, Any]:
    """What a fresh process finds, with the caches in a folder.

    Raises:
        RuntimeError: it failed.
    """
    variables = {each: str(caches / each) for each in ("HALIDE_BACKEND_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")}
    process = subprocess.run(
        [sys.executable, __file__, "--start", name, dtype, mode, backend],
        env={**os.environ, **variables, "OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
    )
    if process.returncode:
        raise RuntimeError(f"{name} {dtype} {mode} {backend}:\n{process.stderr[-2000:]}")
    return json.loads(process.stdout.splitlines()[-1])


def trial(name: str, dtype: str, mode: str, rounds: int, threads: int) -> dict[str, Any]:
    """All starts of a model, by backend and kind, and the ratios."""
    starts: dict[str, dict[str, list[dict[str, Any]]]] = {each: {kind: [] for kind in STARTS} for each in BACKENDS}
    for number in range(rounds):
        for backend in BACKENDS if number % 2 == 0 else BACKENDS[::-1]:
            with tempfile.TemporaryDirectory() as caches:
                for kind in STARTS:
                    found = child(name, dtype, mode, backend, Path(caches), threads)
                    check(found, backend, kind == "cold")
                    starts[backend][kind].append(found)
    lowest = {b: {k: min(each["seconds"] for each in starts[b][k]) for k in STARTS} for b in BACKENDS}
    ratios = {kind: lowest["halide_backend"][kind] / lowest["cpp"][kind] for kind in STARTS}
    return {"model": name, "dtype": dtype, "mode": mode, "ratios": ratios, "seconds": lowest, "starts": starts}


def main() -> None:
    if sys.argv[1:2] == ["--start"]:
        name, dtype, mode, backend = sys.argv[2:]
        print(json.dumps(start(name, dtype, mode == "training", backend)))
        return
    import cpu_models

    from halide_backend.bench.provenance import provenance

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=cpu_models.MODELS, default=list(cpu_models.MODELS))
    parser.add_argument("--dtypes", nargs="*", choices=("float32", "bfloat16"), default=["float32"])
    parser.add_argument("--modes", nargs="*", choices=("inference", "training"), default=["inference", "training"])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1, help="of a step, not of compilation")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    trials = []
    for name, dtype, mode in ((n, d, m) for n in asked.only for d in asked.dtypes for m in asked.modes):
        found = trial(name, dtype, mode, asked.rounds, asked.threads)
        trials.append(found)
        wrong = [b for b in BACKENDS if not all(each["right"] for k in STARTS for each in found["starts"][b][k])]
        seconds = {kind: [round(found["seconds"][b][kind], 1) for b in BACKENDS] for kind in STARTS}
        times = "  ".join(f"{kind} {found['ratios'][kind]:.3f} {seconds[kind]} s" for kind in STARTS)
        print(f"{name} {dtype} {mode}: {times}  wrong {wrong or 'nobody'}", flush=True)
        if asked.out:
            asked.out.write_text(json.dumps({"machine": provenance("cpu"), "trials": trials}) + "\n")
    for kind in STARTS:
        ratios = [each["ratios"][kind] for each in trials]
        print(f"{kind}: geometric mean {statistics.geometric_mean(ratios):.3f}, highest {max(ratios):.3f}")


if __name__ == "__main__":
    main()
