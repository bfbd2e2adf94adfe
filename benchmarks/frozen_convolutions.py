"""Parts of frozen networks that this backend computes by kernels of its own, against Inductor's C++ backend.

    python benchmarks/frozen_convolutions.py [--threads 1] [--only Square] [--out results.json]

Depthwise filters after a convolution of 1 x 1 and a SiLU, or after a loop, and squeeze-and-excitation blocks, at the
sizes of EfficientNet for 4 pictures of 128 x 128, filters of MobileNets and ConvNeXt, convolutions that networks begin
with, and filters of 3 x 3: of ResNet-18 and VGG, which were looked at, and sizes that were not ("held back"). C++
leaves all to calls of oneDNN. They take turns, this backend twice, as the control; outputs are compared with those of
float64, and the generated code shows which form ran. Ratios are of medians; above 1 this backend is faster.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from cpu_models import BOUNDS, alternate
from torch import Tensor, nn
from torch._inductor import config

from halide_backend.bench.provenance import provenance
from halide_backend.inspection.compiled import compile_for

PICTURES = 4
#: Channels before the convolution of 1 x 1, 0 for a loop instead; channels, side, points of the filter's side, stride,
#: padding before and behind, and the activation after the filter.
FILTERS = (
    (0, 32, 64, 3, 1, 1, 1, "silu"),
    (16, 96, 64, 3, 2, 0, 1, "silu"),
    (24, 144, 32, 5, 2, 1, 2, "silu"),
    (40, 240, 16, 3, 2, 0, 1, "silu"),
    (80, 480, 8, 3, 1, 1, 1, "silu"),
    (112, 672, 8, 5, 1, 2, 2, "silu"),
    (192, 1152, 4, 5, 1, 2, 2, "silu"),
    (0, 144, 32, 5, 2, 1, 2, "silu"),
    (0, 64, 112, 3, 2, 1, 1, "relu"),
    (0, 72, 56, 5, 2, 2, 2, "relu"),
    (0, 512, 14, 3, 1, 1, 1, "relu"),
    (0, 96, 56, 7, 1, 3, 3, "none"),
    (0, 384, 14, 7, 1, 3, 3, "none"),
)
AFTER = {"silu": F.silu, "relu": F.relu, "none": lambda x: x}
#: Filters, side of the picture of 3 channels, points of the filter's side, stride, padding before and behind, and the
#: activation.
FIRST = (
    (64, 128, 7, 2, 3, 3, "relu"),
    (32, 128, 3, 2, 0, 1, "silu"),
    (96, 128, 4, 4, 0, 0, "none"),
    (16, 224, 3, 2, 1, 1, "none"),
    (64, 224, 3, 1, 1, 1, "relu"),
)
#: Pictures, channels, filters, side, whether the picture is added to the result, and whether the size was looked at
#: while the kernel's rules were written.
SQUARE = (
    (4, 64, 64, 32, False, True),
    (4, 64, 64, 32, True, True),
    (4, 128, 128, 16, True, True),
    (4, 256, 256, 8, True, True),
    (4, 512, 512, 4, True, True),
    (1, 64, 64, 56, True, True),
    (1, 128, 128, 28, False, True),
    (1, 256, 256, 14, False, True),
    (1, 512, 512, 7, True, True),
    (1, 64, 64, 224, False, True),
    (1, 256, 256, 56, False, True),
    (1, 512, 512, 28, False, True),
    (4, 512, 512, 14, False, True),
    (1, 16, 32, 100, False, False),
    (8, 32, 16, 30, False, False),
    (2, 48, 96, 27, False, False),
    (1, 96, 96, 75, True, False),
    (3, 160, 160, 20, True, False),
    (1, 192, 384, 13, False, False),
    (1, 320, 64, 10, False, False),
    (16, 256, 512, 6, False, False),
    (1, 768, 256, 24, False, False),
    (2, 1024, 1024, 8, False, False),
)
#: Channels, fewer channels, side.
BLOCKS = ((32, 8, 64), (96, 4, 32), (240, 10, 8), (672, 28, 8), (1152, 48, 4))
BACKENDS = {"halide": "halide_backend", "itself": "halide_backend", "cpp": "cpp"}


class Filter(nn.Module):
    def __init__(
        self, fewer: int, channels: int, side: int, points: int, stride: int, before: int, behind: int, after: str
    ) -> None:
        super().__init__()
        self.shape = (PICTURES, fewer or channels, side, side)
        self.first = nn.Sequential(nn.Conv2d(fewer, channels, 1), nn.SiLU()) if fewer else nn.ReLU()
        more = behind - before
        self.sides = (0, more, 0, more)
        self.filter = nn.Conv2d(channels, channels, points, stride=stride, padding=before, groups=channels)
        self.after = AFTER[after]

    def forward(self, x: Tensor) -> Tensor:
        padded = F.pad(self.first(x), self.sides) if any(self.sides) else self.first(x)
        filtered: Tensor = self.after(self.filter(padded))
        return filtered


class First(nn.Module):
    def __init__(self, filters: int, side: int, points: int, stride: int, before: int, behind: int, after: str) -> None:
        super().__init__()
        self.shape = (PICTURES, 3, side, side)
        more = behind - before
        self.sides = (0, more, 0, more)
        self.filter = nn.Conv2d(3, filters, points, stride=stride, padding=before)
        self.after = AFTER[after]

    def forward(self, x: Tensor) -> Tensor:
        filtered: Tensor = self.after(self.filter(F.pad(x, self.sides) if any(self.sides) else x))
        return filtered


class Square(nn.Module):
    def __init__(self, pictures: int, channels: int, filters: int, side: int, adds: bool, was_looked_at: bool) -> None:
        super().__init__()
        self.shape = (pictures, channels, side, side)
        self.filter = nn.Conv2d(channels, filters, 3, padding=1)
        self.adds, self.held_back = adds, not was_looked_at

    def forward(self, x: Tensor) -> Tensor:
        filtered: Tensor = self.filter(x)
        return F.relu(filtered + x if self.adds else filtered)


class Block(nn.Module):
    def __init__(self, channels: int, fewer: int, side: int) -> None:
        super().__init__()
        self.shape = (PICTURES, channels, side, side)
        self.inner, self.outer = nn.Conv2d(channels, fewer, 1), nn.Conv2d(fewer, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        squeezed = F.silu(self.inner(x.mean((2, 3), keepdim=True)))
        return x * self.outer(squeezed).sigmoid()


PARTS: tuple[tuple[Any, Any], ...] = ((Filter, FILTERS), (First, FIRST), (Square, SQUARE), (Block, BLOCKS))


def form(code: str) -> str:
    """How the generated code computes the part."""
    if "= load_kernel('halide_depthwise" in code:
        swish = ", which begins with a SiLU" if "before='swish'" in code else ""
        return f"a depthwise kernel{swish}"
    if "= load_kernel('halide_convolution" in code:
        return "a kernel"
    if "= load_kernel('halide_winograd" in code:
        return "Winograd's algorithm"
    calls = code.split("def call")[-1].count("mkldnn._convolution_pointwise")
    return f"{calls} calls of oneDNN" if calls else "loops"


def trial(model: Filter | First | Square | Block) -> dict[str, Any]:
    layout = torch.contiguous_format if isinstance(model, First) else torch.channels_last
    x = torch.randn(model.shape).contiguous(memory_format=layout)
    wanted = copy.deepcopy(model).double()(x.double())
    compiled = {side: compile_for(backend, model) for side, backend in BACKENDS.items()}
    errors = {side: float((each.call(x) - wanted).abs().max() / wanted.abs().max()) for side, each in compiled.items()}
    samples = alternate({side: (lambda call=each.call: call(x)) for side, each in compiled.items()})
    ms = {side: statistics.median(each) for side, each in samples.items()}
    return {
        "part": type(model).__name__,
        "shape": model.shape,
        "filters": model.filter.out_channels if isinstance(model, Square) else None,
        "held_back": isinstance(model, Square) and model.held_back,
        "forms": {side: form("".join(each.codes)) for side, each in compiled.items()},
        "right": all(error <= BOUNDS[torch.float32] for error in errors.values()),
        "errors": errors,
        "ratios": {side: ms[side] / ms["halide"] for side in ("itself", "cpp")},
        "samples_ms": samples,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="*", choices=[kind.__name__ for kind, _ in PARTS])
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    asked_parts = [each for each in PARTS if not asked.only or each[0].__name__ in asked.only]
    trials = []
    with torch.no_grad(), config.patch(freezing=True):
        for model in (kind(*each) for kind, sizes in asked_parts for each in sizes):
            found = trial(model.eval())
            trials.append(found)
            ratios = {side: round(ratio, 3) for side, ratio in found["ratios"].items()}
            kind = "held back" if found["held_back"] else ""
            print(
                kind,
                found["part"],
                found["shape"],
                ratios,
                found["forms"],
                "right" if found["right"] else found["errors"],
            )
    if asked.out:
        asked.out.write_text(json.dumps({"machine": provenance("cpu"), "trials": trials}, indent=1))


if __name__ == "__main__":
    main()
