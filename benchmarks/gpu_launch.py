"""What a launch from Python costs on a GPU: this backend's launcher against Inductor's Triton launcher.

    python benchmarks/gpu_launch.py [--out results.json]

Both launch a kernel of a thousand elements, with the arguments that Inductor's generated code gives it. A sample is the
mean of launches that are issued one after another and not waited for; the backends take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch._inductor.codecache import PyCodeCache

from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import compile_for

BACKENDS = ("triton", "halide_backend")

#: Launches of one sample, fewer than the queue of a stream takes, and samples.
LAUNCHES, SAMPLES = 200, 101


def launcher(backend: str) -> Callable[[], None]:
    """One launch of `x + y`, as the generated code makes it."""
    before = len(PyCodeCache.modules)
    x, y, result = (torch.randn(1000, device="cuda") for _ in range(3))
    # Without its caches Inductor forgets the modules that it made; of graphs from them no code is known.
    compiled = compile_for(backend, lambda x, y: x + y, caches=True, options={"fx_graph_cache": False})
    compiled(x, y)
    compiled.check_run(lambda: compiled.call(x, y))
    kernels = [
        (name, value)
        for module in PyCodeCache.modules[before:]
        if hasattr(module, "call")
        for name, value in vars(module).items()
        if name.startswith("triton_poi_fused" if backend == "triton" else "halide_fused")
    ]
    ((_, kernel),) = kernels
    stream = torch.cuda.current_stream().cuda_stream
    if backend == "triton":
        return lambda: kernel.run(x, y, result, 1000, stream=stream)
    return lambda: kernel(x, y, result, stream)


def sample(launch: Callable[[], None]) -> float:
    """Microseconds of one launch."""
    begin = time.perf_counter()
    for _ in range(LAUNCHES):
        launch()
    passed = time.perf_counter() - begin
    torch.cuda.synchronize()
    return passed * 1e6 / LAUNCHES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    launches = {backend: launcher(backend) for backend in BACKENDS}
    samples: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for number in range(SAMPLES + 3):
        for backend, launch in launches.items():
            found = sample(launch)
            if number >= 3:
                samples[backend].append(round(found, 4))
    medians = {backend: statistics.median(values) for backend, values in samples.items()}
    print(*(f"{backend} {median:.2f} us" for backend, median in medians.items()), sep="; ", end="; ")
    print(f"ours is {medians['halide_backend'] / medians['triton']:.3f} of it")
    if options.out:
        options.out.write_text(
            json.dumps({"machine": provenance("cuda"), "us": medians, "samples": samples}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
