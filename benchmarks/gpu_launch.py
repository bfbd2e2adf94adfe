"""What a launch costs on a GPU: this backend's launcher, and its C function that C++ wrappers call, against Inductor's
Triton launcher.

    python benchmarks/gpu_launch.py [--out results.json]

Both launch a kernel of a thousand elements, with the arguments that Inductor's generated code gives it. A sample is the
mean of launches that are issued one after another and not waited for; they take turns. The launches of the C function
are a loop in C++, compiled with g++.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch._inductor.codecache import PyCodeCache

from halide_backend import loading
from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import compile_for

BACKENDS = ("triton", "halide_backend")
CPP = "halide_backend in C++"

_LOOP = """
#include <cstdint>
extern "C" int repeat(int32_t (*function)(void* const*, const int64_t*, void*, char*), void* const* buffers,
                      void* launch, int times) {
  int failed = 0;
  char message[256];
  for (int k = 0; k < times; k++) failed |= function(buffers, nullptr, launch, message);
  return failed;
}
"""

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


def repeated(launch: Callable[[], None]) -> Callable[[], None]:
    """A sample's launches from Python."""

    def repeat() -> None:
        for _ in range(LAUNCHES):
            launch()

    return repeat


def repeated_in_cpp(folder: str) -> Callable[[], None]:
    """A sample's launches of the C function of `x + y`, as Inductor's C++ wrapper makes them."""
    x, y, result = (torch.randn(1000, device="cuda") for _ in range(3))
    entries = set(loading._c_functions)
    compiled = compile_for("halide_backend", lambda x, y: x + y, options={"cpp_wrapper": True})
    compiled(x, y)
    (entry,) = set(loading._c_functions) - entries
    function, module = loading.c_function_addresses(entry)
    source, library = Path(folder, "loop.cpp"), Path(folder, "loop.so")
    source.write_text(_LOOP)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    repeat = ctypes.CDLL(str(library)).repeat
    buffers = (ctypes.c_void_p * 3)(x.data_ptr(), y.data_ptr(), result.data_ptr())
    launch = (ctypes.c_void_p * 2)(module, torch.cuda.current_stream().cuda_stream)

    def run() -> None:
        if repeat(ctypes.c_void_p(function), buffers, launch, LAUNCHES):
            raise RuntimeError("a launch failed")

    result.zero_()
    run()
    torch.testing.assert_close(result, x + y)
    return run


def sample(launches: Callable[[], None]) -> float:
    """Microseconds of one launch."""
    begin = time.perf_counter()
    launches()
    passed = time.perf_counter() - begin
    torch.cuda.synchronize()
    return passed * 1e6 / LAUNCHES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    launches = {backend: repeated(launcher(backend)) for backend in BACKENDS}
    with tempfile.TemporaryDirectory() as folder:
        launches[CPP] = repeated_in_cpp(folder)
    samples: dict[str, list[float]] = {backend: [] for backend in launches}
    for number in range(SAMPLES + 3):
        for backend, launch in launches.items():
            found = sample(launch)
            if number >= 3:
                samples[backend].append(round(found, 4))
    medians = {backend: statistics.median(values) for backend, values in samples.items()}
    print(*(f"{backend} {median:.2f} us" for backend, median in medians.items()), sep="; ", end="; ")
    print(
        *(f"{name} is {medians[name] / medians['triton']:.3f} of Triton's" for name in ("halide_backend", CPP)),
        sep="; ",
    )
    if options.out:
        options.out.write_text(
            json.dumps({"machine": provenance("cuda"), "us": medians, "samples": samples}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
