"""Inductor's C++ wrapper on a GPU, in a running process: kernels are found by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor import config as inductor_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as the C++ wrapper does"),
]

Native = Callable[[], int]


@pytest.fixture(autouse=True)
def in_cpp(on_cuda: None) -> Iterator[None]:
    with inductor_config.patch(cpp_wrapper=True):
        yield


def rows(x: Tensor, weight: Tensor, table: Tensor, index: Tensor) -> Tensor:
    return (torch.softmax(x * 2 + table[index], -1) * F.gelu(weight + x.shape[0])).sum(0)


def values(count: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(count)
    floats = [torch.randn(*size, device="cuda") for size in ((count, 48), (48,), (50, 48))]
    return [*(x.to(dtype).requires_grad_() for x in floats), torch.arange(count, device="cuda") % 50]


def gradients(function: Callable[..., Tensor], count: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    given = values(count, dtype)
    result = function(*given)
    result.square().sum().backward()
    return [result.detach(), *(x.grad for x in given[:3] if x.grad is not None)]


def test_forward_and_backward_of_dynamic_sizes(native: Native) -> None:
    compiled = torch.compile(rows, dynamic=True)
    for count in (7, 33, 1000):
        found, wanted = gradients(compiled, count), gradients(rows, count, torch.float64)
        assert len(found) == len(wanted) == 4
        for a, b in zip(found, wanted):
            assert float((a - b).abs().max() / b.abs().max()) < 1e-5
    assert native() >= 2


def test_a_cuda_graph_of_a_compiled_function() -> None:
    compiled = torch.compile(rows)
    given = [x.detach() for x in values(64)]
    with torch.no_grad():
        compiled(*given)
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            compiled(*given)
        stream.synchronize()
        with torch.cuda.graph(graph):
            found = compiled(*given)
        given[0].normal_()
        graph.replay()
        torch.cuda.synchronize()
        torch.testing.assert_close(found, rows(*given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scalar", [torch.tensor(0.3), torch.tensor(7), torch.tensor(2.5, dtype=torch.float64)])
def test_a_scalar_on_the_cpu(native: Native, scalar: Tensor) -> None:
    compiled, x = torch.compile(lambda x, s: torch.softmax(x * s, -1) + s), torch.randn(30, 70, device="cuda")
    for _ in range(2):
        torch.testing.assert_close(compiled(x, scalar), torch.softmax(x * scalar, -1) + scalar)
        scalar.add_(1)
    assert native() >= 1


def test_parameters_of_an_optimizer(native: Native) -> None:
    """Short kernels, which the Python launcher launches together."""

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        moments = torch._foreach_mul(tensors, 0.9)
        return tuple(torch._foreach_add(moments, [x.square() for x in tensors], alpha=0.1))

    given = [torch.randn(size, device="cuda") for size in (7, 64, 1000, 33, 48, 5)]
    for found, wanted in zip(torch.compile(step)(*given), step(*given)):
        torch.testing.assert_close(found, wanted)
    assert native() >= 6


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_devices_in_one_graph() -> None:
    def both(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return torch.softmax(x, -1), torch.softmax(y + 1, -1)

    x = torch.randn(20, 30, device="cuda:0")
    for a, b in zip(torch.compile(both)(x, x.to("cuda:1")), both(x, x.to("cuda:1"))):
        torch.testing.assert_close(a, b)


#: Compiles and runs, and says what was built for it.
_SCRIPT = """
import json, torch
import halide_backend
from torch._inductor import config
import torch._inductor.cpp_builder as builder
built, build = [], builder.CppBuilder.build
def noted(self):
    built.append(self.get_target_file_path().rpartition("/")[2])
    return build(self)
builder.CppBuilder.build = noted
config.cuda_backend, config.cpp_wrapper, config.cpp_cache_precompile_headers = "halide_backend", True, False
torch.manual_seed(0)
f = lambda x, w: (torch.softmax(x * 2, -1) * w).sum(0)
g = torch.compile(f, dynamic=True)
errors = []
for n in (9, 40):
    x, w = torch.randn(n, 64, device="cuda", requires_grad=True), torch.randn(64, device="cuda", requires_grad=True)
    results = []
    for function in (g, f):
        x.grad = w.grad = None
        y = function(x, w)
        y.square().sum().backward()
        results.append((y.detach(), x.grad, w.grad))
    errors += [float((a - b).abs().max() / b.abs().max()) for a, b in zip(*results)]
stats = halide_backend.stats()
print("REPORT" + json.dumps({"errors": errors, "built": built, "compiled": stats["kernels_compiled"],
                             "native": stats["native_kernels"], "delegated": stats["delegated_kernels"]}))
"""


@pytest.mark.parametrize("caches", [True, False])
def test_a_second_process_compiles_nothing(tmp_path: Path, caches: bool) -> None:
    """With Inductor's caches neither C++ nor kernels are built; without them the kernels still come from the store."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "HALIDE_BACKEND_CACHE_DIR": str(tmp_path / "kernels"),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "0" if caches else "1",
    }

    def run() -> dict[str, list[float]]:
        done = subprocess.run(
            [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, list[float]] = json.loads(done.stdout.partition("REPORT")[2])
        assert len(found["errors"]) == 6 and max(found["errors"]) < 1e-4
        return found

    first, second = run(), run()
    assert first["native"] and not first["delegated"]
    assert first["compiled"] and first["built"]
    assert not second["compiled"]
    assert bool(second["built"]) == (not caches)
