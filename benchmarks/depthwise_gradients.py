"""Gradients of depthwise filters: the loops of this backend against oneDNN's, one backward step of a filter at a time.

    python benchmarks/depthwise_gradients.py [--threads 1] [--out results.json]

Each step is compiled for this backend, for it once more (the control) and for C++; they take turns with eager, whose
pictures are contiguous. Weight gradients are compared with those of float64. Ratios are of medians; above 1 this
backend is faster.
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
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import compile_for

#: Pictures, channels, side of a picture, side of the filter, stride.
LAYERS = (
    (4, 96, 56, 7, 1), (4, 192, 28, 7, 1), (4, 384, 14, 7, 1), (4, 768, 7, 7, 1), (1, 768, 7, 7, 1), (1, 96, 56, 7, 1),
    (4, 64, 28, 5, 1), (4, 240, 28, 5, 2), (4, 672, 14, 5, 1), (4, 1152, 7, 5, 1), (2, 128, 28, 9, 1),
    (2, 64, 28, 11, 1),
)  # fmt: skip
SECONDS = 1.5


def trial(pictures: int, channels: int, side: int, kernel: int, stride: int) -> dict[str, Any]:
    padding = kernel // 2
    x, weight = torch.randn(pictures, channels, side, side), torch.randn(channels, 1, kernel, kernel)
    exact = weight.double().requires_grad_()
    result = F.conv2d(x.double(), exact, padding=padding, stride=stride, groups=channels)
    gradient = torch.randn(result.shape)
    (truth,) = torch.autograd.grad(result, exact, gradient.double())

    def step(gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        sides = [stride, stride], [padding, padding], [1, 1], False, [0, 0]
        both = torch.ops.aten.convolution_backward(gradient, x, weight, None, *sides, channels, [True, True, False])
        return both[0], both[1]

    operands = (gradient, x, weight)
    turned = (*(each.contiguous(memory_format=torch.channels_last) for each in operands[:2]), weight)
    compiled = {name: compile_for(name.split()[0], step) for name in ("halide_backend", "halide_backend again", "cpp")}
    calls: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
        **{name: lambda one=one: one(*turned) for name, one in compiled.items()},  # type: ignore[misc]
        "eager": lambda: step(*operands),
    }
    errors = {name: float((call()[1].double() - truth).abs().max() / truth.abs().max()) for name, call in calls.items()}
    assert max(errors.values()) < 1e-5, errors
    code = compiled["halide_backend"].codes[0]
    assert "[True, False, False]" in code, code
    samples: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(samples["eager"]) < 7:
        order = list(calls.items())
        for name, call in order if len(samples["eager"]) % 2 else reversed(order):
            start = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - start)
    ours, again, cpp, eager = (statistics.median(times) for times in samples.values())
    return {
        "layer": [pictures, channels, side, kernel, stride],
        "against_cpp": cpp / ours,
        "against_eager": eager / ours,
        "control": again / ours,
        "errors": errors,
        "samples_s": samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    trials = []
    for layer in LAYERS:
        trials.append(found := trial(*layer))
        print(layer, *(f"{name} {found[name]:.2f}" for name in ("against_cpp", "against_eager", "control")), flush=True)
    for name in ("against_cpp", "against_eager", "control"):
        print(name, f"geometric mean {statistics.geometric_mean(each[name] for each in trials):.2f}")
    if asked.out:
        asked.out.write_text(json.dumps({"machine": provenance("cpu"), "trials": trials}) + "\n")


if __name__ == "__main__":
    main()
