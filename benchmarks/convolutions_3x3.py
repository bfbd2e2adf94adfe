"""Filters of 3 x 3 that are not frozen, against Inductor's C++ backend and eager.

    python benchmarks/convolutions_3x3.py [--threads 1] [--modes inference] [--out results.json]

The sizes of `frozen_convolutions.py`, half of which were never looked at ("held back"): inference, and a training step
with gradients of picture, weight and bias. Picture and weight are contiguous, or both are in channels-last. The others
call oneDNN. They take turns, this backend twice, as the control; results and gradients are compared with
those of float64, and the kernels in the generated code are counted. Ratios are of medians; above 1 this backend is
faster.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from cpu_models import BOUNDS, alternate
from frozen_convolutions import SQUARE, Square
from torch import Tensor

from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import compile_for

BACKENDS = {"halide": "halide_backend", "itself": "halide_backend", "cpp": "cpp", "eager": "eager"}
LAYOUTS = {"contiguous": torch.contiguous_format, "channels-last": torch.channels_last}


def results(function: Callable[[Tensor], Tensor], model: Square, x: Tensor, trains: bool) -> list[Tensor]:
    """What `function`, `model` compiled, makes of x, and in training the gradients for ones in its place."""
    with torch.set_grad_enabled(trains):
        found = function(x)
    if not trains:
        return [found]
    return [found.detach(), *torch.autograd.grad(found, (x, *model.parameters()), torch.ones_like(found))]


def trial(model: Square, layout: str, trains: bool) -> dict[str, Any]:
    model = model.to(memory_format=LAYOUTS[layout])
    x = torch.randn(model.shape).contiguous(memory_format=LAYOUTS[layout]).requires_grad_(trains)
    exact = copy.deepcopy(model).double()
    wanted = results(exact, exact, x.detach().double().requires_grad_(trains), trains)
    compiled = {side: compile_for(backend, model) for side, backend in BACKENDS.items()}
    errors = {
        side: max(
            float((got - truth).abs().max() / truth.abs().max())
            for got, truth in zip(results(each.call, model, x, trains), wanted)
        )
        for side, each in compiled.items()
    }
    samples = alternate(
        {side: (lambda call=each.call: results(call, model, x, trains)) for side, each in compiled.items()}
    )
    ms = {side: statistics.median(each) for side, each in samples.items()}
    return {
        "shape": model.shape,
        "filters": model.filter.out_channels,
        "adds": model.adds,
        "held_back": model.held_back,
        "layout": layout,
        "training": trains,
        "kernels": {side: "".join(each.codes).count(" halide_winograd_") for side, each in compiled.items()},
        "right": all(error <= BOUNDS[torch.float32] for error in errors.values()),
        "errors": errors,
        "ratios": {side: ms[side] / ms["halide"] for side in ("itself", "cpp", "eager")},
        "samples_ms": samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--modes", nargs="*", default=["inference", "training"], choices=["inference", "training"])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    trials = []
    for size in SQUARE:
        for trains in (each == "training" for each in asked.modes):
            for layout in LAYOUTS:
                found = trial(Square(*size), layout, trains)
                trials.append(found)
                kind = f"{'training' if trains else 'inference'} {layout}{' held back' if found['held_back'] else ''}"
                ratios = {side: round(ratio, 3) for side, ratio in found["ratios"].items()}
                right = "right" if found["right"] else found["errors"]
                print(found["shape"], found["filters"], kind, ratios, found["kernels"]["halide"], right, flush=True)
    if asked.out:
        asked.out.write_text(json.dumps({"machine": provenance("cpu"), "trials": trials}, indent=1))


if __name__ == "__main__":
    main()
