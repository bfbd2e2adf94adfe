"""Cumulative sums and their kin along each dimension."""

from __future__ import annotations

import torch

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import boxes, in_rows_of, matrices

KERNELS = (
    Kernel("cumsum", lambda x: x.cumsum(-1), matrices(1)),
    Kernel("cumsum_37", lambda x: x.cumsum(-1), in_rows_of(37)),
    Kernel("cumsum_50000", lambda x: x.cumsum(-1), in_rows_of(50_000), ("float32",)),
    Kernel("cumsum_columns", lambda x: x.cumsum(0), matrices(1), ("float32",)),
    Kernel("cumsum_middle", lambda x: x.cumsum(1), boxes()),
    Kernel("reversed_cumsum", lambda x: x.flip(-1).cumsum(-1).flip(-1), matrices(1)),
    Kernel("cumprod", lambda x: torch.sigmoid(x + 6).cumprod(-1), in_rows_of(100), ("float32",)),
    Kernel("cummax", lambda x: x.cummax(-1)[0], matrices(1)),
    Kernel("logcumsumexp", lambda x: torch.logcumsumexp(x, -1), matrices(1), ("float32",)),
)
