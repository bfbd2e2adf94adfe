"""The ratios of a benchmark as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.bench.measurement import Result
from halide_backend.cache_key import NAME
from halide_backend.errors import HalideBackendError


def plot(results: Sequence[Result], against: str, file: str) -> None:
    """Write a picture with a bar for each timed case, longest first.

    Raises:
        HalideBackendError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise HalideBackendError(
            f"matplotlib cannot be imported ({error})", where="bench --plot", cure='pip install "halide-backend[bench]"'
        ) from error
    measured = sorted((r for r in results if r.samples), key=lambda result: result.ratio(against))
    figure = Figure(figsize=(8, 1 + 0.16 * len(measured)), layout="constrained")
    axes = figure.subplots()
    axes.barh([r.name for r in measured], [r.ratio(against) for r in measured], color="#4477aa")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.tick_params(axis="y", labelsize=5)
    axes.set_xlabel(f"time of {against} / time of {NAME}")
    axes.margins(y=0.005)
    figure.savefig(file)
