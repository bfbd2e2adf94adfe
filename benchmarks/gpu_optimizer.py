"""A compiled step of AdamW for many parameters on a GPU: this backend against Triton.

    python benchmarks/gpu_optimizer.py [--out results.json] [--layers N]

The results of both are compared with eager's. Times are microseconds of a step: `graph` of the replay of a CUDA graph,
`call` from Python until the GPU is done. The backends take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import halide_backend
from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import compile_for

BACKENDS = ("triton", "halide_backend")
SHAPES = ((256, 256), (256,), (1024, 256), (1024,), (256, 1024), (256,))
ROUNDS = 21


def optimizer(layers: int) -> tuple[list[torch.Tensor], torch.optim.Optimizer]:
    torch.manual_seed(0)
    parameters = [torch.randn(shape, device="cuda", requires_grad=True) for shape in SHAPES * layers]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    rate = torch.tensor(1e-3, device="cuda")
    return parameters, torch.optim.AdamW(parameters, lr=rate, foreach=True, capturable=True)


def captured(step: Callable[[], None]) -> torch.cuda.CUDAGraph:
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        step()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            step()
    return graph


def launches(step: Callable[[], None]) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())


def microseconds(call: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e6


def replayed(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def measure(layers: int) -> dict[str, Any]:
    expected, eager = optimizer(layers)
    eager.step()
    eager.step()
    found: dict[str, Any] = {}
    steps, graphs, kept = {}, {}, []
    for backend in BACKENDS:
        parameters, adam = optimizer(layers)
        halide_backend.reset_stats()
        compiled = compile_for(backend, adam.step, dynamic=None)
        step = compiled.call
        compile_s = sum(microseconds(step) for _ in range(2)) / 1e6
        right = all(torch.allclose(p, q, rtol=1e-5, atol=1e-6) for p, q in zip(parameters, expected, strict=True))
        delegated = halide_backend.stats()["delegation_reasons"]
        found[backend] = {"right": right, "compile_s": round(compile_s, 2), "delegated": delegated}
        compiled.check_run(step)
        steps[backend], graphs[backend] = step, captured(step)
        found[backend] |= {"launches": launches(step), "graph": [], "call": []}
        kept.append(parameters)
    for _ in range(ROUNDS):
        for backend in BACKENDS:
            found[backend]["graph"].append(round(replayed(graphs[backend]), 2))
            found[backend]["call"].append(round(microseconds(steps[backend]), 2))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--layers", type=int, default=12, help="groups of six parameters (default: %(default)s)")
    options = parser.parse_args()
    found = measure(options.layers)
    for kind in ("graph", "call"):
        medians = [statistics.median(found[backend][kind]) for backend in BACKENDS]
        print(f"{kind}: triton {medians[0]:.1f} us, ours {medians[1]:.1f} us, ratio {medians[0] / medians[1]:.3f}")
    shown = ("right", "launches", "compile_s", "delegated")
    print({backend: {key: found[backend][key] for key in shown} for backend in BACKENDS})
    if options.out:
        options.out.write_text(
            json.dumps({"machine": provenance("cuda"), "layers": options.layers, **found}, indent=1) + "\n"
        )
    return 0 if all(found[backend]["right"] for backend in BACKENDS) else 1


if __name__ == "__main__":
    raise SystemExit(main())
