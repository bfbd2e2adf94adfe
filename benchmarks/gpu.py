"""Kernels on a GPU: checked against eager, then timed against Inductor's Triton backend; results as JSON.

    python benchmarks/gpu.py [--out results.json] [--only NAME ...] [--no-timing]

Every function is compiled twice, with `cuda_backend` "halide_backend" and "triton". What is timed is the replay of a
CUDA graph of several calls on different copies of the arguments, together larger than the second-level cache; the two
backends take turns. A ratio above 1 says that this backend is faster.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor_config
from gpu_cases import Case, cases

import halide_backend

#: Bytes that the calls of one graph touch together: several times the 60 MB second-level cache of an H200.
FOOTPRINT = 400 << 20
MOST_CALLS = 24
REPLAYS = 9

#: (relative, absolute) tolerance against eager in float32.
TOLERANCE = {torch.float32: (2e-4, 2e-4), torch.bfloat16: (2e-2, 2e-2), torch.float16: (4e-3, 4e-3)}


@dataclass
class Result:
    """One case: whether it was right, what became of its kernels, and medians in microseconds."""

    name: str
    right: bool = False
    native: int = 0
    delegated: dict[str, int] = field(default_factory=dict)
    compile_s: float = 0.0
    us: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""

    @property
    def ratio(self) -> float:
        return self.us["triton"] / self.us["halide_backend"] if len(self.us) == 2 else math.nan


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in tensors(part)] if isinstance(value, (tuple, list)) else []


def run(function: Callable[..., Any], arguments: tuple[Any, ...], gradients: bool) -> list[torch.Tensor]:
    """Results, and with `gradients` those of the arguments that require them."""
    results = tensors(function(*arguments))
    if not gradients:
        return results
    leaves = [a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad]
    roots = [r for r in results if r.requires_grad]
    # Numbers that bfloat16 has exactly, with a mean unlike 0.
    seeds = [(torch.arange(r.numel(), device=r.device) % 7 - 2).to(r.dtype).reshape(r.shape) for r in roots]
    return [*(r.detach() for r in results), *torch.autograd.grad(roots, leaves, seeds)]


def wide(argument: Any) -> Any:
    """The argument in float32, if it is a narrower float."""
    narrow = isinstance(argument, torch.Tensor) and argument.dtype in (torch.bfloat16, torch.float16)
    return argument.detach().float().requires_grad_(argument.requires_grad) if narrow else argument


def close(got: torch.Tensor, wanted: torch.Tensor) -> str:
    """Empty if equal within tolerance, else what is wrong."""
    if got.shape != wanted.shape:
        return f"shape {tuple(got.shape)} instead of {tuple(wanted.shape)}"
    try:
        if got.is_floating_point():
            relative, absolute = TOLERANCE.get(got.dtype, (1e-6, 1e-6))
            scale = max(1.0, float(wanted.float().abs().nan_to_num(0, 0, 0).mean()) if wanted.numel() else 1.0)
            torch.testing.assert_close(
                got.float(), wanted.float(), rtol=relative, atol=absolute * scale, equal_nan=True
            )
        else:
            torch.testing.assert_close(got, wanted)
    except AssertionError as error:
        return str(error)
    return ""


def compiled(case: Case, backend: str) -> Callable[..., Any]:
    torch._dynamo.reset()
    # For good: the backward graph is compiled when the forward call has returned.
    inductor_config.cuda_backend = backend
    inductor_config.force_disable_caches = True
    return torch.compile(case.function, dynamic=False)


def check(case: Case, result: Result) -> None:
    halide_backend.reset_stats()
    begin = time.perf_counter()
    torch.manual_seed(0)
    arguments = case.arguments()
    got = run(compiled(case, "halide_backend"), arguments, case.gradients)
    torch.cuda.synchronize()
    result.compile_s = time.perf_counter() - begin
    stats = halide_backend.stats()
    result.native = int(stats["native_kernels"])  # type: ignore[call-overload]
    result.delegated = dict(stats["delegation_reasons"])  # type: ignore[call-overload]
    torch.manual_seed(0)
    wanted = run(case.function, tuple(map(wide, case.arguments())), case.gradients)
    problems = [f"result {k}: {p}" for k, (g, w) in enumerate(zip(got, wanted)) if (p := close(g, w))]
    result.right = not problems and len(got) == len(wanted)
    result.error = "\n".join(problems)


def captured(case: Case, backend: str) -> tuple[torch.cuda.CUDAGraph, int, list[Any]]:
    """A graph of several calls, how many, and what keeps their memory."""
    first = case.arguments()
    size = sum(t.numel() * t.element_size() for t in tensors(first)) * 2
    calls = max(2, min(MOST_CALLS, FOOTPRINT // max(size, 1)))
    sets = [first, *(case.arguments() for _ in range(calls - 1))]
    function = compiled(case, backend)
    stream = torch.cuda.Stream()
    kept: list[Any] = [sets, function]
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(2):
            function(*first)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            kept.append([function(*arguments) for arguments in sets])
    return graph, calls, kept


def replay(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / calls


def measure(case: Case, result: Result) -> None:
    graphs = {backend: captured(case, backend) for backend in ("triton", "halide_backend")}
    for _ in range(2):
        for graph, calls, _ in graphs.values():
            replay(graph, calls)
    for _ in range(REPLAYS):
        for backend, (graph, calls, _) in graphs.items():
            result.samples.setdefault(backend, []).append(round(replay(graph, calls), 3))
    result.us = {backend: statistics.median(samples) for backend, samples in result.samples.items()}


def evaluate(case: Case, timing: bool) -> Result:
    result = Result(case.name)
    try:
        check(case, result)
        if timing and case.timed and result.right:
            measure(case, result)
    except Exception:
        result.error = traceback.format_exc()[-3000:]
        result.right = False
    return result


def machine() -> dict[str, str]:
    import triton

    properties = torch.cuda.get_device_properties(0)
    return {
        "device": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "driver": driver_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": sys.version.split()[0],
        "command": " ".join(["python", *(Path(a).name if Path(a).is_absolute() else a for a in sys.argv)]),
    }


def driver_version() -> str:
    import subprocess

    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split("\n")[0]


def geometric_mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values))) if values else math.nan


def selected(only: list[str]) -> Iterator[Case]:
    for case in cases():
        if not only or any(word in case.name for word in only):
            yield case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--no-timing", action="store_true")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after this time")
    options = parser.parse_args()
    begin = time.perf_counter()
    results = []
    # Whatever runs first in a process is slow.
    evaluate(next(iter(cases())), timing=not options.no_timing)
    for case in selected(options.only):
        if time.perf_counter() - begin > options.seconds:
            break
        result = evaluate(case, not options.no_timing)
        results.append(result)
        times = f"{result.us['halide_backend']:8.1f} us  ratio {result.ratio:5.3f}" if result.us else ""
        state = "right" if result.right else "WRONG"
        print(f"{case.name:34} {state} native {result.native} {result.delegated or ''} {times}", flush=True)
        if result.error:
            print("    " + result.error.replace("\n", "\n    "), flush=True)
    ratios = [r.ratio for r in results if r.us]
    print(f"{sum(r.right for r in results)} of {len(results)} right; geometric mean ratio {geometric_mean(ratios):.3f}")
    if options.out:
        document = {"machine": machine(), "results": [asdict(r) for r in results]}
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(r.right for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
