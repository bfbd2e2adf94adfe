"""All cases of a benchmark, and what is told of them: a line for each, a summary, JSON, a plot."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from halide_backend.bench.kernels import Case, cases
from halide_backend.bench.measurement import MAX_AUTOTUNE, Result, evaluate
from halide_backend.cache_key import NAME
from halide_backend.errors import HalideBackendError
from halide_backend.inspection import machine as installed


@dataclass(frozen=True)
class Request:
    """What to run: `only` are parts of names (all cases if empty), `seconds` the time after which no case begins."""

    device: str
    against: str
    only: tuple[str, ...] = ()
    timing: bool = True
    seconds: float = math.inf
    json_file: str = ""
    plot_file: str = ""


def run(request: Request) -> int:
    """Run the cases, telling of each as it is done; 1 if a result was wrong.

    Raises:
        HalideBackendError: the device is not there, or has no such other backend.
    """
    _possible(request)
    chosen = [c for c in cases(request.device) if not request.only or any(part in c.name for part in request.only)]
    begin = time.perf_counter()
    if request.timing:
        # Whatever runs first in a process is slow.
        evaluate(next(cases(request.device)), request.against)
    results: list[Result] = []
    for case in chosen:
        if time.perf_counter() - begin > request.seconds:
            print(f"{len(chosen) - len(results)} cases left out after {request.seconds:g} s")
            break
        results.append(_told(case, request, against_first=len(results) % 2 == 1))
    print(_summary(results, request.against))
    if request.json_file:
        document = {
            "machine": machine(request.device),
            "against": request.against,
            "results": list(map(asdict, results)),
        }
        Path(request.json_file).write_text(json.dumps(document, indent=1) + "\n")
    if request.plot_file:
        _plot(results, request)
    return 0 if all(result.right for result in results) else 1


def _possible(request: Request) -> None:
    if request.device == "cuda" and not torch.cuda.is_available():
        raise HalideBackendError("there is no CUDA device", where="bench --device cuda", cure="Use --device cpu.")
    if {"triton": "cpu", "cpp": "cuda"}.get(request.against.removesuffix(MAX_AUTOTUNE)) == request.device:
        raise HalideBackendError(
            f"Inductor has no {request.against} backend for {request.device}",
            where=f"bench --against {request.against}",
            cure="Use --against triton for cuda, cpp for cpu, or eager.",
        )


def _told(case: Case, request: Request, *, against_first: bool) -> Result:
    result = evaluate(case, request.against, timing=request.timing, against_first=against_first)
    times = ""
    if result.samples:
        times = f"{result.median(NAME):10.1f} us {result.median(request.against):10.1f} us "
        times += f"ratio {result.ratio(request.against):.3f}"
    state = "right" if result.right else "WRONG"
    reasons = f" {result.delegated}" if result.delegated else ""
    print(f"{result.name:44} {state} native {result.native}{reasons} {times}", flush=True)
    if result.error:
        print("    " + result.error.replace("\n", "\n    "), flush=True)
    return result


def _summary(results: Sequence[Result], against: str) -> str:
    ratios = [result.ratio(against) for result in results if result.samples]
    lines = [f"{sum(result.right for result in results)} of {len(results)} right"]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        enough, least = sum(ratio >= 0.97 for ratio in ratios), min(ratios)
        lines.append(
            f"geometric mean of {against}'s time over ours {mean:.3f}; {enough} of {len(ratios)} at least 0.97"
        )
        lines.append(f"the lowest is {least:.3f}")
    first = [(result.compile_s[against], result.compile_s[NAME]) for result in results if against in result.compile_s]
    if first and against != "eager":
        theirs, ours = map(sum, zip(*first, strict=True))
        lines.append(f"first calls took {theirs:.1f} s with {against}, {ours:.1f} s with ours")
    return "; ".join(lines)


def machine(device: str) -> dict[str, str]:
    """What the figures belong to."""
    facts = {
        **installed.facts(),
        "command": " ".join(["halide-backend", *(Path(a).name if Path(a).is_absolute() else a for a in sys.argv[1:])]),
    }
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        told = subprocess.run(query, capture_output=True, text=True, check=False).stdout
        facts |= {"device": properties.name, "driver": told.partition("\n")[0], "triton": installed.version("triton")}
    else:
        facts["threads"] = str(torch.get_num_threads())
    return facts


def _plot(results: Sequence[Result], request: Request) -> None:
    """A bar for each case, longest first."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HalideBackendError(
            f"matplotlib cannot be imported ({error})", where="bench --plot", cure='pip install "halide-backend[bench]"'
        ) from error
    measured = sorted((r for r in results if r.samples), key=lambda result: result.ratio(request.against))
    figure = Figure(figsize=(8, 1 + 0.16 * len(measured)), layout="constrained")
    axes = figure.subplots()
    axes.barh([r.name for r in measured], [r.ratio(request.against) for r in measured], color="#4477aa")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.tick_params(axis="y", labelsize=5)
    axes.set_xlabel(f"time of {request.against} / time of {NAME}")
    axes.margins(y=0.005)
    figure.savefig(request.plot_file)
