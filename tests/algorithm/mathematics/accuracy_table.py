"""`python tests/algorithm/mathematics/accuracy_table.py [NAME...]`: largest errors in ulps and compile times.

Beside ours stands Inductor's C++ backend over the same arguments.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import torch._inductor.config as inductor_config
from arguments import STRIDE_32, Floats
from test_accuracy import BOUNDS, inputs_of, truth_64
from truth import Number, float64_truth, torch_function
from ulps import ulp_64, ulps_32
from vector_kernel import vector_kernel


def cpp(name: str, *inputs: Floats) -> Floats:
    torch._dynamo.reset()
    with inductor_config.patch(cpu_backend="cpp"):
        compiled = torch.compile(torch_function(name), dynamic=False)
        return np.asarray(compiled(*map(torch.from_numpy, inputs)).numpy())


def largest_64(values: Floats, truth: list[Number], floor: float) -> float:
    return max(ulp_64(v, t, floor) for v, t in zip(values.tolist(), truth, strict=True))


def row(name: str) -> str:
    bound = BOUNDS[name]
    x = inputs_of(name, 32, 1 << 20, STRIDE_32)
    truth = float64_truth(name, *x)
    single = min((vector_kernel(name, bound.arity, 32) for _ in range(3)), key=lambda k: k.seconds)
    errors = [ulps_32(values, truth, bound.floor).max() for values in (single(*x), cpp(name, *x))]
    x, exact = truth_64(name, 3000)
    double = min((vector_kernel(name, bound.arity, 64) for _ in range(3)), key=lambda k: k.seconds)
    errors += [largest_64(values, exact, bound.floor) for values in (double(*x), cpp(name, *x))]
    figures = " ".join(f"{error:9.3g}" for error in errors)
    return f"{name:10s} {figures}  {single.seconds * 1e3:5.0f} {double.seconds * 1e3:5.0f}"


if __name__ == "__main__":
    print("function   max ulp: 32        C++        64       C++  compile ms: 32, 64")
    with np.errstate(all="ignore"):
        for function in sys.argv[1:] or BOUNDS:
            print(row(function), flush=True)
