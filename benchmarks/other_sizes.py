"""Kernels compiled once for all sizes, at the sizes of their first call and at others, against static kernels.

    python benchmarks/other_sizes.py [--only NAME ...] [--out results.json]

Kernels have a second version for short sizes of the first call; this says what they do without. Results are compared
with eager's. What is written is, for each of three shapes, a static kernel's time over that of the one for all sizes:
medians in turns, on one thread. The first shape is that of the first call, the others have no size in common with it.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from halide_backend.bench.provenance import provenance
from halide_backend.bench.timing import SAMPLED_S, alternate, calls
from halide_backend.inspection.compiled import compile_for

#: What is added to the sizes.
MORE = (0, -1, 3)


def windows(x: Tensor) -> Tensor:
    batch, height, width, channels = x.shape
    return x.view(batch, height // 7, 7, width // 7, 7, channels).permute(0, 1, 3, 2, 4, 5).contiguous()


def causal(scores: Tensor) -> Tensor:
    rows, columns = (torch.arange(size) for size in scores.shape[-2:])
    return scores.masked_fill(columns > rows[:, None], -torch.inf).softmax(-1)


def turned(x: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * 0.6 - odd * 0.8, odd * 0.6 + even * 0.8), -1).flatten(-2)


def images(count: int, channels: int, side: int) -> tuple[Tensor, ...]:
    return (torch.randn(count, channels, side, side),)


def rows(count: int, length: int) -> tuple[Tensor, ...]:
    return (torch.randn(count, length),)


def shifted(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return (x * scale + shift).relu()


#: Name -> a function, and what makes its arguments, given what is added to their sizes.
KINDS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Tensor, ...]]]] = {
    "sums of rows of 37": (lambda x: x.sum(-1), lambda more: rows(20_000 + more, 37 + more)),
    "sums of 40 columns": (lambda x: x.sum(0), lambda more: rows(20_000 + more, 40 + more)),
    "largest of 24 columns": (lambda x: x.amax(0), lambda more: rows(30_000 + more, 24 + more)),
    "places of the largest of 50": (lambda x: x.argmax(-1), lambda more: rows(15_000 + more, 50 + more)),
    "softmax of 33": (lambda x: x.softmax(-1), lambda more: rows(20_000 + more, 33 + more)),
    "logsumexp of 60": (lambda x: x.logsumexp(-1), lambda more: rows(10_000 + more, 60 + more)),
    "sums along rows of 33": (lambda x: x.cumsum(-1), lambda more: rows(20_000 + more, 33 + more)),
    "layer norm of 48": (
        lambda x: F.layer_norm(x, x.shape[-1:]),
        lambda more: rows(20_000 + more, 48 + more),
    ),
    "scaled and shifted by 24": (
        shifted,
        lambda more: (*rows(40_000 + more, 24 + more), *(torch.randn(24 + more) for _ in range(2))),
    ),
    "reflected edges": (lambda x: F.pad(x, (2,) * 4, mode="reflect"), lambda more: images(8 + more, 32, 56 + more)),
    "circular edges": (lambda x: F.pad(x, (2,) * 4, mode="circular"), lambda more: images(8 + more, 32, 55 + more)),
    "rolled": (lambda x: x.roll((3, 3), (2, 3)), lambda more: images(8 + more, 32, 56 + more)),
    "windows": (windows, lambda more: (torch.randn(8 + more, 56, 56, 32 + more),)),
    "bicubic": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"),
        lambda more: images(4 + more, 8, 39 + more),
    ),
    "patches": (lambda x: F.unfold(x, 3, padding=1), lambda more: images(2 + more, 16, 48 + more)),
    "heads": (
        lambda x: x.transpose(1, 2).contiguous(),
        lambda more: (torch.randn(64 + more, 50 + more, 40 + more, 16 + more),),
    ),
    "largest of 3 x 3": (lambda x: F.max_pool2d(x, 3, 1, 1), lambda more: images(8 + more, 32, 40 + more)),
    "group norm": (lambda x: F.group_norm(x, 4), lambda more: images(8 + more, 48 + 4 * more, 40 + more)),
    "causal softmax of 49": (causal, lambda more: (torch.randn(400 + more, 49 + more, 49 + more),)),
    "turned pairs": (turned, lambda more: rows(4_000 + more, 300 + 2 * more)),
    "softmax of 700": (lambda x: x.softmax(-1), lambda more: rows(1_000 + more, 700 + more)),
    "statistics of 30 channels, last": (
        lambda x: torch.var_mean(x, (0, 1, 2)),
        lambda more: (torch.randn(9 + more, 40 + more, 40 + more, 30 + more),),
    ),
    "means of pixels of 50": (
        lambda x: x.mean((1, 2)),
        lambda more: (torch.randn(20, 28 + more, 28 + more, 50 + more),),
    ),
    "places of the least of 30 columns": (lambda x: x.argmin(0), lambda more: rows(5_000 + more, 30 + more)),
    "sums of all but the middle, lines of 60": (
        lambda x: x.sum((0, 2)),
        lambda more: (torch.randn(160 + more, 64 + more, 60 + more),),
    ),
    "sums of all but the middle, lines of 20": (
        lambda x: x.sum((0, 2)),
        lambda more: (torch.randn(470 + more, 64 + more, 20 + more),),
    ),
    "norms of rows of 20": (lambda x: x / x.norm(dim=-1, keepdim=True), lambda more: rows(20_000 + more, 20 + more)),
    "replicated edges": (lambda x: F.pad(x, (2,) * 4, mode="replicate"), lambda more: images(9 + more, 30, 50 + more)),
    "largest of 3 x 3, stride 2": (lambda x: F.max_pool2d(x, 3, 2, 1), lambda more: images(9 + more, 30, 45 + more)),
}


def measure(name: str) -> list[float]:
    function, made = KINDS[name]
    dynamic = compile_for("halide_backend", function, dynamic=True)
    ratios = []
    for more in MORE:
        arguments = made(more)
        contestants = {"dynamic": dynamic, "static": compile_for("halide_backend", function)}
        for each in contestants.values():
            torch.testing.assert_close(each.call(*arguments), function(*arguments), rtol=1e-4, atol=2e-3)
            each.check_code()
        samples = alternate({key: calls(each.call, arguments) for key, each in contestants.items()}, seconds=SAMPLED_S)
        median = {key: statistics.median(each) for key, each in samples.items()}
        ratios.append(round(median["static"] / median["dynamic"], 3))
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    for name in options.only:
        torch.manual_seed(0)
        results[name] = measure(name)
        print(f"{name}: {' '.join(f'{ratio:.2f}' for ratio in results[name])}", flush=True)
    means = [statistics.geometric_mean(column) for column in zip(*results.values())]
    print(f"geometric means: {' '.join(f'{mean:.3f}' for mean in means)}")
    if options.out:
        found = {"machine": provenance("cpu"), "more": MORE, "results": results}
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
