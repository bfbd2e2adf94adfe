"""Inductor's C++ wrapper in a running process: kernels are found by name, and a second process compiles nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., dict[str, Any]]

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as the C++ wrapper does")

#: Forward and backward of a function with a check, of dynamic sizes; and what was compiled for it.
SCRIPT = """
import torch
from torch._inductor import config
import torch._inductor.cpp_builder as builder
built = []
build = builder.CppBuilder.build
def noted(self):
    built.append(self.get_target_file_path().rpartition("/")[2])
    return build(self)
builder.CppBuilder.build = noted
config.cpu_backend, config.cpp_wrapper, config.cpp_cache_precompile_headers = "halide_backend", True, False
torch.manual_seed(0)
table, weight = (torch.randn(50, 48, requires_grad=True) for _ in range(2))
def f(x, index):
    return (torch.softmax(x * 2 + table[index], -1) * torch.nn.functional.gelu(weight[0] + x.shape[0])).sum(0)
g = torch.compile(f, dynamic=True)
def error(n):
    x, index = torch.randn(n, 48), torch.arange(n) - n // 2
    results = []
    for function in (g, f):
        table.grad = weight.grad = None
        y = function(x, index)
        y.square().sum().backward()
        results.append((y.detach(), table.grad, weight.grad))
    return max(float((got - wanted).abs().max() / wanted.abs().max()) for got, wanted in zip(*results))
errors = [error(n) for n in (7, 33, 40)]
def out_of_range():
    g(torch.randn(40, 48), torch.arange(40) + 20)
refused = failure(out_of_range)
errors.append(error(12))
import halide_backend
stats = halide_backend.stats()
report(errors=errors, refused=refused, built=built, native=stats["native_kernels"],
       delegated=stats["delegated_kernels"], compiled=stats["kernels_compiled"], loaded=stats["kernels_loaded"])
"""

NO_PROBES = {"TORCHINDUCTOR_VEC_ISA_OK": "0"}


def assert_right(found: dict[str, Any]) -> None:
    assert max(found["errors"]) < 1e-5
    assert found["refused"][0] == "RuntimeError"
    assert "_0: index out of range: a dimension of size" in found["refused"][2]
    assert found["loaded"] >= 2


def test_a_second_process_compiles_nothing(run: Run) -> None:
    first = run(SCRIPT, **NO_PROBES)
    assert_right(first)
    assert first["native"] >= 2 and first["delegated"] == 0
    assert first["compiled"] >= 2 and len(first["built"]) >= 2
    second = run(SCRIPT, **NO_PROBES)
    assert_right(second)
    assert second["compiled"] == 0 and second["built"] == []
    assert second["loaded"] == first["loaded"]


@pytest.mark.long
def test_without_inductors_caches_and_without_the_kernels_of_the_first_process(run: Run) -> None:
    first = run(SCRIPT, TORCHINDUCTOR_FORCE_DISABLE_CACHES="1", **NO_PROBES)
    assert_right(first)
    # Inductor's caches have the graph, and other kernels are built for it.
    run(SCRIPT, **NO_PROBES)
    third = run(SCRIPT, HALIDE_BACKEND_CACHE_DIR="elsewhere", **NO_PROBES)
    assert_right(third)
    assert third["compiled"] == third["loaded"] >= 2 and third["built"] == []
