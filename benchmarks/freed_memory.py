"""What a model's calls cost when the C library gives freed memory back, and when it keeps it for the next call.

    python benchmarks/freed_memory.py [--only efficientnet ...] [--modes inference training] [--out results.json]

Processes with the option `kept_memory_mb` at 0, at its default, and at 1024 take turns, a model each, those of
`cpu_models.py` in float32 on one thread; inference is frozen. A process reports the median time of a call and the
pages that the system gave it meanwhile. The control is a second process with 0.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

OPTION = "HALIDE_BACKEND_KEPT_MEMORY_MB"
ENVIRONMENTS = {"0": {OPTION: "0"}, "default": {}, "1024": {OPTION: "1024"}, "control": {OPTION: "0"}}
WARM_UP, CALLS = 4, 15


def measured(name: str, training: bool) -> dict[str, float]:
    """Median milliseconds and pages of a call, in this process."""
    import torch
    from cpu_models import MODELS, step_of
    from torch._inductor import config

    from halide_backend.inspection.compiled import compile_for

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    model.train(training)
    with config.patch(freezing=not training):
        compiled = compile_for("halide_backend", model)
        step = step_of(compiled.call, model, inputs, training)
        for _ in range(WARM_UP):
            step()
        compiled.check_run(step)
        times, pages = [], resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(CALLS):
            begin = time.perf_counter()
            step()
            times.append((time.perf_counter() - begin) * 1e3)
    pages = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - pages
    return {"ms": statistics.median(times), "pages": pages / CALLS}


def in_a_process(name: str, mode: str, environment: dict[str, str]) -> dict[str, float]:
    inherited = {key: value for key, value in os.environ.items() if key != OPTION and not key.startswith("MALLOC_")}
    command = [sys.executable, __file__, "--measure", name, mode]
    done = subprocess.run(command, env={**inherited, **environment}, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def trial(name: str, mode: str, rounds: int) -> dict[str, Any]:
    samples: dict[str, list[dict[str, float]]] = {each: [] for each in ENVIRONMENTS}
    for _ in range(rounds):
        for each, environment in ENVIRONMENTS.items():
            samples[each].append(in_a_process(name, mode, environment))
    ms = {each: statistics.median(one["ms"] for one in found) for each, found in samples.items()}
    return {
        "model": name,
        "mode": mode,
        "nothing_kept_over": {each: ms["0"] / ms[each] for each in ("default", "1024", "control")},
        "pages": {each: statistics.median(one["pages"] for one in found) for each, found in samples.items()},
        "samples": samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["efficientnet", "convnext", "resnet", "bert", "gpt2"])
    parser.add_argument("--modes", nargs="*", choices=("inference", "training"), default=["inference", "training"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="results are added to those that the file holds")
    parser.add_argument("--measure", nargs=2, metavar=("MODEL", "MODE"), help="what each process runs")
    asked = parser.parse_args()
    if asked.measure:
        print(json.dumps(measured(asked.measure[0], asked.measure[1] == "training")))
        return
    from cpu_models import add_result

    from halide_backend.bench.provenance import provenance

    for name in asked.only:
        for mode in asked.modes:
            found = trial(name, mode, asked.rounds)
            ratios = {each: round(ratio, 3) for each, ratio in found["nothing_kept_over"].items()}
            print(f"{name} {mode}: {ratios}, pages a call {found['pages']}", flush=True)
            if asked.out:
                add_result(asked.out, provenance("cpu"), found)


if __name__ == "__main__":
    main()
