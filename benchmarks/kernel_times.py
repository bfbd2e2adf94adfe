"""How long one kernel takes to compile and to load: every kernel of the demo's models, one after another.

    python benchmarks/kernel_times.py [--json FILE] [--rounds N] [--quick]

Runs two steps of each model to collect its kernel texts, then compiles each text in a warm worker, alone, `rounds`
times in turns (a round goes through all texts), and links each object into this process as often. A kernel's time is
the median over its rounds; the figures are medians and quantiles over kernels. Needs no C compiler.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from halide_backend import pipeline
from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.loader import load_object
from halide_backend.build.pool import WorkerPool
from halide_backend.demonstration.catalogue import workloads
from halide_backend.inspection.compiled import compile_for
from halide_backend.launch import launcher

LIMIT_COMPILE_MS, LIMIT_LOAD_MS = 80, 1
BACKEND = "halide_backend"


def texts_of_models(quick: bool) -> dict[str, dict[str, str]]:
    """Model -> the distinct texts of its kernels -> a kernel's name."""
    importlib.import_module("torch._inductor.compile_fx")
    get_or_compile = pipeline.get_or_compile
    found: dict[str, dict[str, str]] = {}
    for workload in workloads():
        texts: dict[str, str] = {}

        def recorded(text: str, target: Any, *, name: str, texts: dict[str, str] = texts, **options: Any) -> Any:
            texts.setdefault(text, name)
            return get_or_compile(text, target, name=name, **options)

        pipeline.get_or_compile = recorded
        try:
            trial = workload.start(lambda function: compile_for(BACKEND, function, dynamic=None).call, quick)
            trial.step()
            trial.step()
        finally:
            pipeline.get_or_compile = get_or_compile
        found[workload.name] = texts
    return found


def measure(texts: dict[str, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of each kernel's compilations (Halide and LLVM, in the worker) and of its links into the process."""
    pool = WorkerPool(1, time_limit=120, memory_limit=8 << 30)
    target = pipeline.current_target("cpu")
    symbols = launcher.native().symbols()
    objects: dict[str, bytes] = {}
    times: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for number, (text, name) in enumerate(texts.items()):
            kernel: CompiledKernel = pool.compile(text, target, "kernel", name)
            own = times.setdefault(f"{number} {name}", {"compile_ms": [], "load_ms": []})
            own["compile_ms"].append(1000 * kernel.seconds)
            objects[f"{number} {name}"] = kernel.object
    pool.close()
    loaded = []
    for _ in range(rounds):
        for kernel_name, image in objects.items():
            start = time.perf_counter()
            loaded.append(load_object(image, "kernel_argv", symbols))
            times[kernel_name]["load_ms"].append(1000 * (time.perf_counter() - start))
    return times


def figures(times: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """Median and 90 % quantile over kernels."""
    result = {}
    for kind in ("compile_ms", "load_ms"):
        each = sorted(statistics.median(own[kind]) for own in times.values())
        result[f"median_{kind}"] = round(statistics.median(each), 2)
        result[f"p90_{kind}"] = round(each[int(0.9 * (len(each) - 1))], 2)
        result[f"max_{kind}"] = round(each[-1], 2)
    return result


def main() -> int:
    """Prints one line per model and writes all samples as JSON if asked; 1 where a median is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the small models of `halide-backend demo --quick`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(Path(folder, "inductor"))
        os.environ["HALIDE_BACKEND_CACHE_DIR"] = str(Path(folder, BACKEND))
        models = texts_of_models(options.quick)
        times = {model: measure(texts, options.rounds) for model, texts in models.items()}
    everything = {f"{model} {name}": own for model, kernels in times.items() for name, own in kernels.items()}
    rows = {model: figures(own) for model, own in times.items()} | {"all": figures(everything)}
    for model, row in rows.items():
        count = len(times.get(model, everything))
        print(f"{model:16} {count:4} kernels  " + "  ".join(f"{name} {value}" for name, value in row.items()))
    within = rows["all"]["median_compile_ms"] <= LIMIT_COMPILE_MS and rows["all"]["median_load_ms"] <= LIMIT_LOAD_MS
    if options.json:
        versions = {name: importlib.metadata.version(name) for name in ("torch", "halide", "llvmlite")}
        machine = {"cpu": llvm.get_host_cpu_name(), "cores": os.cpu_count(), "python": platform.python_version()}
        command = f"python benchmarks/kernel_times.py --rounds {options.rounds}" + (" --quick" if options.quick else "")
        result = {"command": command, **machine, **versions, "figures": rows, "samples_ms": times}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print("within the limits" if within else f"above {LIMIT_COMPILE_MS} ms or {LIMIT_LOAD_MS} ms")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
