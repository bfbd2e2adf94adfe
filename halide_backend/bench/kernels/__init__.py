"""The kernels of the benchmark, a group a module."""

from __future__ import annotations

from halide_backend.bench.case import Kernel
from halide_backend.bench.kernels import (
    attention,
    gathers,
    layouts,
    losses,
    masks,
    mixed,
    norms,
    optimizers,
    pointwise,
    pooling,
    quantisation,
    reductions,
    rows,
    scans,
    special,
    stencils,
)

#: Group -> its kernels.
GROUPS: dict[str, tuple[Kernel, ...]] = {
    "pointwise": pointwise.KERNELS,
    "rows": rows.KERNELS,
    "norms": norms.KERNELS,
    "reductions": reductions.KERNELS,
    "scans": scans.KERNELS,
    "layouts": layouts.KERNELS,
    "pooling": pooling.KERNELS,
    "stencils": stencils.KERNELS,
    "gathers": gathers.KERNELS,
    "losses": losses.KERNELS,
    "optimizers": optimizers.KERNELS,
    "attention": attention.KERNELS,
    "quantisation": quantisation.KERNELS,
    "masks": masks.KERNELS,
    "mixed": mixed.KERNELS,
    "special": special.KERNELS,
}
