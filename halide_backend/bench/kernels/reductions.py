"""Sums, largest values and their places over each dimension: the last, the first, the middle, all."""

from __future__ import annotations

import torch

from halide_backend.bench.case import Kernel
from halide_backend.bench.operands import boxes, in_rows_of, matrices

KERNELS = (
    Kernel("row_sum", lambda x: x.sum(-1), matrices(1), ("float32", "bfloat16", "float16")),
    *(Kernel(f"row_sum_{width}", lambda x: x.sum(-1), in_rows_of(width)) for width in (8, 100, 50_000)),
    Kernel("column_sum", lambda x: x.sum(0), matrices(1)),
    Kernel("column_sum_37", lambda x: x.sum(0), in_rows_of(37)),
    Kernel("full_sum", lambda x: x.sum(), matrices(1)),
    Kernel("middle_sum", lambda x: x.sum(1), boxes()),
    Kernel("outer_dimensions_sum", lambda x: x.sum((0, 2)), boxes()),
    Kernel("row_mean_square", lambda x: (x * x).mean(-1), matrices(1)),
    Kernel("variance", lambda x: x.var(-1), matrices(1)),
    Kernel("column_variance_mean", lambda x: torch.var_mean(x, 0), matrices(1)),
    Kernel("middle_variance", lambda x: x.var(1), boxes()),
    Kernel("row_max", lambda x: x.amax(-1), matrices(1), ("float32", "bfloat16", "float16", "int8")),
    Kernel("row_max_37", lambda x: x.amax(-1), in_rows_of(37)),
    Kernel("column_max", lambda x: x.amax(0), matrices(1)),
    Kernel("middle_max", lambda x: x.amax(1), boxes()),
    Kernel("smallest_and_largest", lambda x: (x.amin(), x.amax()), matrices(1)),
    Kernel("argmax", lambda x: x.float().argmax(-1), matrices(1)),
    Kernel("argmax_37", lambda x: x.float().argmax(-1), in_rows_of(37)),
    Kernel("argmax_columns", lambda x: x.float().argmax(0), matrices(1)),
    Kernel("argmin_middle", lambda x: x.float().argmin(1), boxes()),
    Kernel("argmax_all", lambda x: x.float().argmax(), matrices(1)),
    Kernel("row_norm", lambda x: torch.linalg.vector_norm(x, dim=-1), matrices(1)),
    Kernel("count_positive", lambda x: (x > 0).sum(-1), matrices(1)),
    Kernel("any_large", lambda x: (x > 4).any(-1), matrices(1)),
    Kernel("dot", lambda x, y: (x * y).sum(), matrices(2)),
    Kernel("row_dot", lambda x, y: (x * y).sum(-1), matrices(2)),
)
