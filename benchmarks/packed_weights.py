"""Float32 linear layers by oneDNN, with dense weights against weights in oneDNN's own layout.

    python benchmarks/packed_weights.py [--threads 1] [--out results.json]

The shapes of `products.py`. Calls take turns, dense, packed, dense again; each finds its weight outside of the caches,
as in a model, for there are 128 MB of them. The control is the second of the dense ones.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from products import SHAPES
from torch import Tensor

from halide_backend.bench.provenance import provenance

BYTES, CALLS = 128 << 20, 60
SIDES = ("dense", "packed", "control")


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).abs().max() / wanted.abs().max())


def trial(m: int, n: int, k: int) -> dict[str, Any]:
    """Samples of all sides in microseconds, and the largest error relative to float64."""
    x, bias = torch.randn(m, k), torch.randn(n)
    dense = [torch.randn(n, k) for _ in range(max(2, math.ceil(BYTES / (4 * n * k))))]
    weights = dict.fromkeys(SIDES, dense)
    weights["packed"] = [torch.ops.mkldnn._reorder_linear_weight(each, m) for each in dense]
    wanted = x.double() @ dense[0].double().t() + bias
    errors = {side: error(linear(x, each[0], bias), wanted) for side, each in weights.items()}
    samples: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(-5, CALLS):
        for position, side in enumerate(SIDES):
            weight = weights[side][(len(SIDES) * number + position) % len(dense)]
            begin = time.perf_counter()
            linear(x, weight, bias)
            if number >= 0:
                samples[side].append((time.perf_counter() - begin) * 1e6)
    us = {side: statistics.median(each) for side, each in samples.items()}
    ratios = {side: us["dense"] / us[side] for side in ("packed", "control")}
    return {"m": m, "n": n, "k": k, "ratios": ratios, "errors": errors, "samples_us": samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    trials = []
    for shape in SHAPES:
        found = trial(*shape)
        trials.append(found)
        ratios = {side: round(each, 3) for side, each in found["ratios"].items()}
        print(shape, ratios, f"error {max(found['errors'].values()):.1e}", flush=True)
    for side in ("packed", "control"):
        each = [one["ratios"][side] for one in trials]
        print(side, f"geometric mean {statistics.geometric_mean(each):.3f}, {min(each):.3f} to {max(each):.3f}")
    if asked.out:
        asked.out.write_text(json.dumps({"machine": provenance("cpu"), "trials": trials}, indent=1))


if __name__ == "__main__":
    main()
