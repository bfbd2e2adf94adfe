"""Layers that oneDNN compiles once (`halide_backend/products/partition.py`), against torch's operators of oneDNN.

    python benchmarks/partitions.py [--threads 1] [--out results.json]

Layers of EfficientNet, ResNet, ConvNeXt, a vision transformer and Whisper's encoder, float32, with weights in oneDNN's
own layout on both sides. Both are called from Python with the same operands, in turns; the control is another partition
of the same layer. Results are compared with those of float64, and a profile shows that a partition ran. Ratios are the
operator's median time over the partition's; above 1 the partition is faster. Filters along one dimension are compared
with ATen's operator of oneDNN for dense weights, which is what Inductor calls.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from cpu_models import BOUNDS, alternate
from torch import Tensor

from halide_backend.bench.provenance import provenance
from halide_backend.products.partition import Operand, Partition

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda value: value,
    "relu": torch.relu,
    "swish": lambda value: value * torch.sigmoid(value),
}


@dataclass(frozen=True)
class Filter:
    """A convolution of 4 pictures; `is_added` to its result is another tensor."""

    channels: int
    filters: int
    side: int
    points: int
    stride: int = 1
    groups: int = 1
    activation: str = "none"
    is_added: bool = False

    @property
    def geometry(self) -> tuple[list[int], list[int], list[int], int]:
        padding = (self.points - 1) // 2 * (self.stride < self.points)
        return [self.stride] * 2, [padding] * 2, [1, 1], self.groups

    def sides(self, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[tuple[Tensor, ...], Any, Any]:
        """Operands, the operator, and the layer."""
        stride, padding, dilation, groups = self.geometry
        operators = torch.ops.mkldnn
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(
            weight.to_mkldnn(), padding, stride, dilation, groups, list(x.shape)
        )
        around = (packed, bias, padding, stride, dilation, groups)

        def layer(x: Tensor, *added: Tensor) -> Tensor:
            return ACTIVATIONS[self.activation](sum(added, F.conv2d(x, weight, bias, *self.geometry)))

        if not self.is_added:
            operator = operators._convolution_pointwise.default
            return (x,), lambda x: operator(x, *around, self.activation, [], ""), layer
        operator = operators._convolution_pointwise_.binary
        added = torch.randn_like(F.conv2d(x, weight, bias, *self.geometry))
        # In place, as in a network, where nothing else needs what is added.
        activation = None if self.activation == "none" else self.activation
        scratch, rest = added.clone(memory_format=torch.preserve_format), ("add", 1.0, activation, [], "")
        return (x, added), lambda x, added: operator(scratch, x, *around, *rest), layer


FILTERS = (
    *(Filter(16, 96, 64, 1, activation="swish"), Filter(96, 96, 64, 3, 2, 96, "swish"), Filter(96, 24, 32, 1)),
    *(Filter(240, 240, 16, 3, 2, 240, "swish"), Filter(80, 480, 8, 1, activation="swish"), Filter(240, 80, 8, 1)),
    *(Filter(480, 480, 8, 5, 1, 480, "swish"), Filter(1152, 1152, 4, 3, 1, 1152, "swish"), Filter(1152, 320, 4, 1)),
    *(Filter(64, 64, 32, 3, activation="relu"), Filter(128, 128, 16, 3, activation="relu"), Filter(512, 512, 4, 3)),
    *(Filter(64, 64, 32, 7, 1, 64), Filter(256, 256, 8, 7, 1, 256), Filter(128, 256, 16, 2, 2)),
    *(Filter(480, 80, 8, 1, is_added=True), Filter(1152, 192, 4, 1, is_added=True)),
    *(Filter(256, 256, 8, 3, activation="relu", is_added=True), Filter(64, 64, 32, 3, 1, 1, "relu", True)),
)
#: Rows, results, and products of each.
LINEAR = ((8, 768, 768), (64, 512, 512), (197, 192, 192), (197, 768, 192), (128, 768, 768), (1500, 1536, 384))
#: Channels, filters, length, stride.
ROWS = ((80, 384, 3000, 1), (384, 384, 3000, 2))


def trial(name: str, operands: tuple[Tensor, ...], operator: Any, layer: Any, wanted: Tensor) -> dict[str, Any]:
    layouts = tuple(Operand(tuple(each.shape), each.stride()) for each in operands)
    sides = {"partition": Partition(layer, layouts), "control": Partition(layer, layouts), "operator": operator}
    found = {side: call(*operands).double() for side, call in sides.items()}
    errors = {side: float((each - wanted).abs().max() / wanted.abs().max()) for side, each in found.items()}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        sides["partition"](*operands)
    ran = sorted({event.name for event in profile.events()})
    if not any(each.startswith("LlgaPartition") for each in ran):
        raise RuntimeError(f"{name} is no partition: {ran}")
    samples = alternate({side: (lambda call=call: call(*operands)) for side, call in sides.items()})
    ms = {side: statistics.median(each) for side, each in samples.items()}
    return {
        "layer": name,
        "ratios": {side: ms[side] / ms["partition"] for side in ("operator", "control")},
        "right": all(error <= BOUNDS[torch.float32] for error in errors.values()),
        "errors": errors,
        "samples_ms": samples,
    }


def filtered(each: Filter) -> dict[str, Any]:
    x = torch.randn(4, each.channels, each.side, each.side).contiguous(memory_format=torch.channels_last)
    weight = torch.randn(each.filters, each.channels // each.groups, each.points, each.points)
    bias = torch.randn(each.filters)
    operands, operator, layer = each.sides(x, weight, bias)
    wanted = F.conv2d(x.double(), weight.double(), bias.double(), *each.geometry)
    if each.is_added:
        wanted = wanted + operands[1].double()
    return trial(str(each), operands, operator, layer, ACTIVATIONS[each.activation](wanted))


def linear(rows: int, results: int, products: int) -> dict[str, Any]:
    x, weight, bias = torch.randn(rows, products), torch.randn(results, products), torch.randn(results)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
    operator = torch.ops.mkldnn._linear_pointwise.default
    wanted = F.linear(x.double(), weight.double(), bias.double())
    name = f"linear {rows} x {products} x {results}"
    return trial(
        name, (x,), lambda x: operator(x, packed, bias, "none", [], ""), lambda x: F.linear(x, weight, bias), wanted
    )


def row(channels: int, filters: int, length: int, stride: int) -> dict[str, Any]:
    x = torch.randn(1, channels, 1, length).contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(filters, channels, 1, 3), torch.randn(filters)
    steps, padding = [1, stride], [0, 1]
    wanted = F.conv2d(x.double(), weight.double(), bias.double(), steps, padding)
    return trial(
        f"filters along one dimension: {channels} x {length}, {filters} of 3, stride {stride}",
        (x,),
        lambda x: torch.ops.aten.mkldnn_convolution(x, weight, bias, padding, steps, [1, 1], 1),
        lambda x: F.conv2d(x, weight, bias, steps, padding),
        wanted,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    trials = []
    with torch.no_grad():
        for function, cases in ((filtered, [(each,) for each in FILTERS]), (linear, LINEAR), (row, ROWS)):
            for case in cases:
                found = function(*case)  # type: ignore[operator]
                trials.append(found)
                ratios = {side: round(ratio, 3) for side, ratio in found["ratios"].items()}
                print(found["layer"], ratios, "right" if found["right"] else found["errors"], flush=True)
    if asked.out:
        asked.out.write_text(json.dumps({"machine": provenance("cpu"), "trials": trials}, indent=1))


if __name__ == "__main__":
    main()
