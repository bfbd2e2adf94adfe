"""`python tests/algorithm/mathematics/accuracy_table.py [NAME...]`: measured errors and compile times, as a table."""

from __future__ import annotations

import sys

import numpy as np
from arguments import STRIDE_32
from test_accuracy import BOUNDS, inputs_of, truth_64
from truth import float64_truth
from ulps import ulp_64, ulps_32
from vector_kernel import vector_kernel


def row(name: str) -> str:
    bound = BOUNDS[name]
    x = inputs_of(name, 32, 1 << 20, STRIDE_32)
    single = min((vector_kernel(name, bound.arity, 32) for _ in range(3)), key=lambda k: k.seconds)
    error_32 = ulps_32(single(*x), float64_truth(name, *x), bound.floor).max()
    double = min((vector_kernel(name, bound.arity, 64) for _ in range(3)), key=lambda k: k.seconds)
    x, truth = truth_64(name, 3000)
    values = double(*x).tolist()
    error_64 = max(ulp_64(v, t, bound.floor) for v, t in zip(values, truth, strict=True))
    times = f"{single.seconds * 1e3:5.0f} {double.seconds * 1e3:5.0f}"
    return f"{name:10s} {error_32:6.3f} {error_64:6.3f}  {times}"


if __name__ == "__main__":
    print("function   max ulp: 32, 64   compile ms: 32, 64")
    with np.errstate(all="ignore"):
        for function in sys.argv[1:] or BOUNDS:
            print(row(function), flush=True)
