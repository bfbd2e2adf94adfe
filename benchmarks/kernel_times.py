"""How long one kernel takes to plan, to compile and to load: every kernel of the demo's models, one after another.

    python benchmarks/kernel_times.py [--json FILE] [--rounds N] [--quick]

Runs two steps of each model to collect its programs, then plans each (program to kernel text) and compiles its text in
a warm worker, alone, `rounds` times in turns (a round goes through all), and links each object into this process as
often. A kernel's time is
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
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.demonstration.catalogue import workloads
from halide_backend.inspection.compiled import compile_for
from halide_backend.launch import launcher
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of

LIMITS_MS = {"plan_ms": 5, "compile_ms": 80, "load_ms": 1}
BACKEND = "halide_backend"


def programs_of_models(quick: bool) -> dict[str, dict[LoopProgram, str]]:
    """Model -> its distinct programs -> a kernel's name."""
    importlib.import_module("torch._inductor.compile_fx")
    schedule_kernel = pipeline.schedule_kernel
    found: dict[str, dict[LoopProgram, str]] = {}
    for workload in workloads():
        programs: dict[LoopProgram, str] = {}

        def recorded(program: LoopProgram, device: Any, name: str, sources: Any, found: Any = programs) -> Any:
            found.setdefault(program, name)
            return schedule_kernel(program, device, name, sources)

        pipeline.schedule_kernel = recorded
        try:
            trial = workload.start(lambda function: compile_for(BACKEND, function, dynamic=None).call, quick)
            trial.step()
            trial.step()
        finally:
            pipeline.schedule_kernel = schedule_kernel
        found[workload.name] = programs
    return found


def measure(programs: dict[LoopProgram, str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of each kernel's planning and linking, in this process, and compilation, in the worker."""
    pool = WorkerPool(1, time_limit=120, memory_limit=8 << 30)
    target = pipeline.current_target("cpu")
    device = device_of(target)
    symbols = launcher.native().symbols()
    objects: dict[str, bytes] = {}
    times: dict[str, dict[str, list[float]]] = {}
    for _ in range(rounds):
        for number, (program, name) in enumerate(programs.items()):
            own = times.setdefault(f"{number} {name}", {kind: [] for kind in LIMITS_MS})
            start = time.perf_counter()
            text = plan_kernel(program, device).text
            own["plan_ms"].append(1000 * (time.perf_counter() - start))
            kernel: CompiledKernel = pool.compile(text, target, "kernel", name)
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
    for kind in LIMITS_MS:
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
        models = programs_of_models(options.quick)
        times = {model: measure(programs, options.rounds) for model, programs in models.items()}
    everything = {f"{model} {name}": own for model, kernels in times.items() for name, own in kernels.items()}
    rows = {model: figures(own) for model, own in times.items()} | {"all": figures(everything)}
    for model, row in rows.items():
        count = len(times.get(model, everything))
        print(f"{model:16} {count:4} kernels  " + "  ".join(f"{name} {value}" for name, value in row.items()))
    above = [kind for kind, limit in LIMITS_MS.items() if rows["all"][f"median_{kind}"] > limit]
    if options.json:
        versions = {name: importlib.metadata.version(name) for name in ("torch", "halide", "llvmlite")}
        machine = {"cpu": llvm.get_host_cpu_name(), "cores": os.cpu_count(), "python": platform.python_version()}
        command = f"python benchmarks/kernel_times.py --rounds {options.rounds}" + (" --quick" if options.quick else "")
        result = {"command": command, **machine, **versions, "figures": rows, "samples_ms": times}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"above the limit: {', '.join(above)}" if above else "within the limits")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
