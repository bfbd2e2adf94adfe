"""Pictures in channels-last against contiguous ones: ResNet-18 of this backend with either, by the number and size of
the pictures, and what `graph_passes/convolution_layouts.py` chooses.

    python benchmarks/convolution_layouts.py [--modes inference training] [--dtype bfloat16] [--out results.json]

One model is compiled with `force_layout_optimization`, without `layout_optimization`, without it once more (the
control), and with neither, which is what the rule chooses. They take turns. Ratios are of medians to the contiguous
one; above 1 that is faster. One thread.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from pathlib import Path
from typing import Any

import torch
import transformers
from cpu_models import alternate, errors_of, is_right, resnet, step_of, widened
from torch import nn

from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import compile_for

#: Pictures, and their side.
PICTURES = ((1, 128), (4, 128), (8, 128), (16, 128), (32, 128), (1, 224), (4, 224), (8, 224))

#: Callable -> Inductor's options.
OPTIONS: dict[str, dict[str, Any]] = {
    "channels last": {"force_layout_optimization": True},
    "contiguous": {"layout_optimization": False},
    "contiguous again": {"layout_optimization": False},
    "rule": {},
}


def trial(pictures: int, side: int, training: bool, dtype: torch.dtype) -> dict[str, Any]:
    torch.manual_seed(0)
    model = resnet()[0].train(training).to(dtype)
    inputs = widened((torch.randn(pictures, 3, side, side),), dtype)
    exact = copy.deepcopy(model).double()
    truth = [step_of(exact, exact, widened(inputs, torch.float64), False)()]
    of_eager = errors_of([step_of(model, model, inputs, False)()], truth)
    steps = {}
    for name, options in OPTIONS.items():
        compiled = compile_for("halide_backend", model, options=options)
        steps[name] = step_of(compiled.call, model, inputs, training)
        if not is_right(errors_of([steps[name]()], truth), of_eager, dtype):
            raise SystemExit(f"{pictures} x {side}, {name}: wrong")
    samples = alternate(steps)
    medians = {name: statistics.median(times) for name, times in samples.items()}
    return {
        "pictures": pictures,
        "side": side,
        "training": training,
        "dtype": str(dtype).removeprefix("torch."),
        "elements_of_pictures_per_weight": ratio(model, inputs),
        "ratios": {name: median / medians["contiguous"] for name, median in medians.items()},
        "samples_ms": samples,
    }


def ratio(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> float:
    """Elements that convolutions read and write, over those of their weights of more than one point."""
    pictures, weights = 0, 0

    def count(layer: nn.Module, read: tuple[torch.Tensor, ...], written: torch.Tensor) -> None:
        nonlocal pictures, weights
        pictures += read[0].numel() + written.numel()
        weights += layer.weight.numel() if layer.weight.shape[2:].numel() > 1 else 0  # type: ignore[union-attr,operator]

    hooks = [each.register_forward_hook(count) for each in model.modules() if isinstance(each, nn.Conv2d)]
    step_of(model, model, inputs, False)()
    for hook in hooks:
        hook.remove()
    return pictures / weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="*", choices=("inference", "training"), default=["inference", "training"])
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    trials = []
    for mode in asked.modes:
        for pictures, side in PICTURES:
            found = trial(pictures, side, mode == "training", getattr(torch, asked.dtype))
            shown = ", ".join(f"{name} {value:.2f}" for name, value in found["ratios"].items())
            print(f"{mode} {pictures} x {side}: {found['elements_of_pictures_per_weight']:.1f}; {shown}", flush=True)
            trials.append(found)
    if asked.out:
        facts = {**provenance("cpu"), "transformers": transformers.__version__}
        asked.out.write_text(json.dumps({"machine": facts, "trials": trials}) + "\n")


if __name__ == "__main__":
    main()
