"""The library that is chosen for float32 products against ATen and oneDNN, over 30 shapes of transformers.

    python benchmarks/products.py [--threads 1] [--out results.json]

Of every layer the product itself (m x k by the transpose of n x k), the gradient of its input and that of its weight
are compiled three times: with ATen, with oneDNN, and with what is chosen, by `halide-backend calibrate` where it has
been run and else by the rule. They take turns, in one order and then in the other, since each finds in the caches what
the one before it left. The generated code shows which library each runs. What is chosen runs the same code as one of
the others: the ratio of those two is the control.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from halide_backend.bench.provenance import provenance
from halide_backend.bench.timing import SAMPLED_S, alternate, calls
from halide_backend.inspection.compiled import Compiled, compile_for
from halide_backend.products.choice import Choice

#: m (rows of the input), n (outputs), k (inputs).
SHAPES = (
    *((128, n, k) for n, k in ((768, 768), (2304, 768), (3072, 768), (768, 3072))),
    *((512, n, k) for n, k in ((768, 768), (2304, 768), (3072, 768), (768, 3072))),
    *((197, n, k) for n, k in ((384, 384), (1152, 384), (1536, 384), (384, 1536))),
    *((128, n, k) for n, k in ((1024, 1024), (2816, 1024), (1024, 2816))),
    *((512, n, k) for n, k in ((512, 512), (2048, 512), (512, 2048))),
    *((1024, n, k) for n, k in ((128, 128), (512, 128), (128, 512), (2304, 768))),
    *((1, n, k) for n, k in ((1024, 1024), (2816, 1024), (768, 3072))),
    *((8, n, k) for n, k in ((768, 768), (3072, 768), (768, 3072))),
    *((32, n, k) for n, k in ((1024, 1024), (32128, 512))),
)
LIBRARIES = ("aten", "onednn", "auto")


def forward(x: Tensor, weight: Tensor) -> Tensor:
    return x @ weight.t()


def input_gradient(gradient: Tensor, weight: Tensor) -> Tensor:
    return gradient @ weight


def weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    return gradient.t() @ x


def operands(function: Callable[..., Tensor], m: int, n: int, k: int) -> tuple[Tensor, Tensor]:
    x, weight, gradient = torch.randn(m, k), torch.randn(n, k), torch.randn(m, n)
    first = x if function is forward else gradient
    return first, x if function is weight_gradient else weight


def library_of(compiled: Compiled) -> str:
    (code,) = compiled.codes
    found = {"onednn": "mkldnn._linear_pointwise.default(" in code, "aten": "extern_kernels." in code}
    (name,) = (name for name, there in found.items() if there)
    return name


def trial(function: Callable[..., Tensor], shape: tuple[int, int, int]) -> dict[str, Any]:
    """Samples of all three in microseconds, which library was chosen, and the largest error relative to float64."""
    arguments = operands(function, *shape)
    wanted = function(*(each.double() for each in arguments))
    compiled, errors = {}, {}
    for library in LIBRARIES:
        compiled[library] = compile_for("halide_backend", function, options={"halide_backend.product_library": library})
        got = compiled[library](*arguments)
        errors[library] = float((got.double() - wanted).abs().max() / wanted.abs().max())
    assert library_of(compiled["aten"]) == "aten" and library_of(compiled["onednn"]) == "onednn"
    assert max(errors.values()) < 1e-5, errors
    samples = alternate({name: calls(each.call, arguments) for name, each in compiled.items()}, seconds=SAMPLED_S)
    return {
        "product": function.__name__,
        "shape": shape,
        "chosen": library_of(compiled["auto"]),
        "errors": errors,
        "samples_us": samples,
    }


def summary(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all trials: the chosen library's speed in that of the faster one, the control, and the gain over ATen."""
    chosen, control, gain = [], [], []
    for each in trials:
        medians = {name: statistics.median(samples) for name, samples in each["samples_us"].items()}
        best = min(medians["aten"], medians["onednn"])
        chosen.append(best / medians[each["chosen"]])
        control.append(medians["auto"] / medians[each["chosen"]])
        gain.append(medians["aten"] / medians[each["chosen"]])
    return {
        "products": len(trials),
        "onednn": sum(each["chosen"] == "onednn" for each in trials),
        "chosen_over_best_lowest": min(chosen),
        "chosen_over_best_below_0.95": sum(each < 0.95 for each in chosen),
        "control_within_3_percent": sum(0.97 <= each <= 1.03 for each in control) / len(control),
        "gain_over_aten_geometric_mean": statistics.geometric_mean(gain),
        "gain_over_aten_lowest": min(gain),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    trials = []
    for shape in SHAPES:
        for function in (forward, input_gradient, weight_gradient):
            trials.append(trial(function, shape))
            medians = {name: statistics.median(each) for name, each in trials[-1]["samples_us"].items()}
            shown = "  ".join(f"{name} {value:.1f}" for name, value in medians.items())
            print(f"{shape} {function.__name__}: {shown} us, chosen {trials[-1]['chosen']}", flush=True)
    facts = {"threads": asked.threads, "chosen_by": Choice.of_this_process().describe(), "summary": summary(trials)}
    print(json.dumps(facts, indent=1))
    if asked.out:
        asked.out.write_text(json.dumps({"machine": provenance("cpu"), **facts, "trials": trials}, indent=1) + "\n")


if __name__ == "__main__":
    main()
