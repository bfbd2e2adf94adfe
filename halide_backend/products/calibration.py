"""How much faster oneDNN is than ATen on this machine, measured on a grid of sizes, and read between its points."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from halide_backend.products.product import FORMS, Product

#: Sizes that are measured, of each side.
SIZES = (1, 8, 64, 512, 2048)

#: Samples of each library at each point; one sample is as many calls as fill this time, in seconds.
_SAMPLES, _SAMPLE_S = 3, 0.001


@dataclass(frozen=True)
class Calibration:
    """What was measured.

    Attributes:
        gains: by form, ATen's time over oneDNN's for all (m, n, k) of `SIZES`, k changing fastest.
    """

    gains: dict[str, tuple[float, ...]]

    def gain(self, product: Product) -> float:
        """ATen's time over oneDNN's for `product`.

        Between points of the grid logarithms are interpolated, side by side; beyond it the nearest point holds.
        """
        sides = [_position(size) for size in (product.m, product.n, product.k)]
        logarithm = 0.0
        for ends in itertools.product((0, 1), repeat=3):
            weight, place = 1.0, 0
            for (below, fraction), end in zip(sides, ends, strict=True):
                weight *= fraction if end else 1 - fraction
                place = place * len(SIZES) + below + end
            if weight:
                logarithm += weight * math.log(self.gains[product.form][place])
        return math.exp(logarithm)

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return {"sizes": list(SIZES), "gains": {form: list(gains) for form, gains in self.gains.items()}}

    @staticmethod
    def from_json(data: Any) -> Calibration:
        """The calibration that `to_json` wrote.

        Raises:
            ValueError: it is none, or one of another grid.
        """
        try:
            gains = {form: tuple(map(float, data["gains"][form])) for form in FORMS}
            known = data["sizes"] == list(SIZES) and all(len(each) == len(SIZES) ** 3 for each in gains.values())
        except (KeyError, TypeError) as error:
            raise ValueError(f"no calibration: {error!r}") from error
        if not known or not all(0 < gain < math.inf for each in gains.values() for gain in each):
            raise ValueError("a calibration of other sizes, or damaged")
        return Calibration(gains)


def _position(size: int) -> tuple[int, float]:
    """The last point of the grid at or below `size` that has one above it, and how far `size` lies towards that."""
    size = min(max(size, SIZES[0]), SIZES[-1])
    below = max(index for index, point in enumerate(SIZES[:-1]) if point <= size)
    return below, math.log(size / SIZES[below]) / math.log(SIZES[below + 1] / SIZES[below])


def grid() -> Iterator[Product]:
    """All products that are measured."""
    for form in FORMS:
        for m, n, k in itertools.product(SIZES, repeat=3):
            yield Product(m, n, k, form)


def measure(time_of: Callable[[Product], tuple[float, float]] | None = None) -> Calibration:
    """Measure all of the grid, with the threads that torch uses now; about 20 seconds.

    `time_of` returns the seconds of ATen and of oneDNN for a product; None for this machine's.
    """
    gains: dict[str, list[float]] = {form: [] for form in FORMS}
    for product in grid():
        aten, onednn = (time_of or seconds)(product)
        gains[product.form].append(aten / onednn)
    return Calibration({form: tuple(each) for form, each in gains.items()})


def seconds(product: Product) -> tuple[float, float]:
    """Seconds of one call of ATen and of oneDNN, which take turns: medians, allocation of the result included."""
    left, right = operands(product)
    calls = aten_call(left, right), onednn_call(left, right)
    counts = []
    for call in calls:
        call()
        counts.append(max(1, int(_SAMPLE_S / max(_timed(call, 1), 1e-9))))
    samples: tuple[list[float], list[float]] = ([], [])
    for _ in range(_SAMPLES):
        for call, count, kept in zip(calls, counts, samples, strict=True):
            kept.append(_timed(call, count))
    return statistics.median(samples[0]), statistics.median(samples[1])


def _timed(call: Callable[[], object], count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def operands(product: Product) -> tuple[Any, Any]:
    """Two matrices of the sizes and the form of `product`."""
    import torch

    m, n, k = product.m, product.n, product.k
    left = torch.randn(k, m).t() if product.form == "tn" else torch.randn(m, k)
    right = torch.randn(n, k).t() if product.form == "nt" else torch.randn(k, n)
    return left, right


def aten_call(left: Any, right: Any) -> Callable[[], Any]:
    """The call of ATen that Inductor writes."""
    import torch

    return lambda: torch.mm(left, right)


def onednn_call(left: Any, right: Any) -> Callable[[], Any]:
    """The call of oneDNN that this backend has Inductor write, with the copy that a transposed left operand needs."""
    import torch

    linear, weight = torch.ops.mkldnn._linear_pointwise.default, right.t()
    return lambda: linear(left, weight, None, "none", [], "")
