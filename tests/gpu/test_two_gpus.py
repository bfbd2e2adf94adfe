"""What one process does on two GPUs: launches on both, from several threads and on streams of the caller's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._inductor import config as inductor_config
from torch._inductor.compile_fx import compile_fx

import halide_backend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

Native = Callable[[], int]


class Rows(nn.Module):
    """A reduction of each row, one of each column, and a product between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(96, 96)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.softmax(self.linear(x) * 2, -1)
        return hidden, torch.tanh(hidden.sum(0))


def wanted(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Results of `model` on a CPU, in float64; from a copy, as other threads call the model."""
    return list(deepcopy(model).cpu().double()(x.cpu().double()))


def check(found: Any, model: nn.Module, x: Tensor) -> None:
    for a, b in zip(found, wanted(model, x), strict=True):
        assert a.device == x.device
        torch.testing.assert_close(a.cpu().double(), b, rtol=1e-4, atol=1e-6)


def on(device: int, rows: int) -> Tensor:
    return torch.randn(rows, 96, device=f"cuda:{device}")


def without_guards(model: nn.Module, example: Tensor) -> Callable[[Tensor], Any]:
    """The graph that is compiled for `example`, as a function of inputs with any number of rows.

    Dynamo may compile again in one of several threads. What the others call meanwhile is traced, which is an error.
    """
    kept: list[tuple[Callable[..., Any], list[Any]]] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        kept.append((compile_fx(graph, inputs), inputs))
        return kept[-1][0]

    torch.compile(model, dynamic=True, backend=backend)(example)
    ((compiled, inputs),) = kept

    def call(x: Tensor) -> Any:
        sizes = {torch.SymInt: x.shape[0], torch.Tensor: x}
        return compiled(*(each if isinstance(each, nn.Parameter) else sizes[type(each)] for each in inputs))

    return call


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Any]:
    """Loads a package of `Rows` made for the first GPU, with a dynamic number of rows."""
    if not shutil.which("g++"):
        pytest.skip("needs a C++ compiler (g++), as AOTInductor does")
    x, rows = on(0, 64), torch.export.Dim("rows", min=2, max=5000)
    with torch.no_grad():
        exported = torch.export.export(Rows().cuda(0), (x,), dynamic_shapes={"x": {0: rows}})
        path = torch._inductor.aoti_compile_and_package(
            exported,
            package_path=str(tmp_path / "model.pt2"),
            inductor_configs={"aot_inductor.precompile_headers": False},
        )
    assert halide_backend.stats()["native_kernels"] and not halide_backend.stats()["delegated_kernels"]
    return lambda device, **options: torch._inductor.aoti_load_package(path, device_index=device, **options)


@pytest.mark.parametrize("cpp_wrapper", [False, True])
def test_the_current_device_is_another(native: Native, cpp_wrapper: bool) -> None:
    """A graph whose tensors are on the second GPU, compiled and called while the first is the current one."""
    model = Rows().cuda(1)
    with inductor_config.patch(cpp_wrapper=cpp_wrapper), torch.no_grad():
        compiled = torch.compile(model, dynamic=True)
        for rows in (64, 5, 1000):
            x = on(1, rows)
            check(compiled(x), model, x)
    assert torch.cuda.current_device() == 0
    assert native() >= 2


def test_training_on_the_second(native: Native) -> None:
    model, x = Rows().cuda(1), on(1, 64)

    def gradients(call: Callable[[Tensor], Any]) -> list[Tensor]:
        model.zero_grad()
        rows, columns = call(x)
        (rows.square().sum() + columns.sum()).backward()
        return [each.grad.clone() for each in model.parameters() if each.grad is not None]

    found, eager = gradients(torch.compile(model)), gradients(model)
    assert len(found) == len(eager) == 2
    for a, b in zip(found, eager, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)
    assert native() >= 2


def test_threads_launch_on_both() -> None:
    """Threads each with a GPU, in turns with no lock between them."""
    models = [Rows().cuda(device) for device in (0, 1)]
    with torch.no_grad():
        compiled = [without_guards(models[device], on(device, 64)) for device in (0, 1)]

    @torch.no_grad()
    def run(thread: int) -> None:
        device = thread % 2
        torch.cuda.set_device(device)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            for rows in range(100, 130):
                x = on(device, rows + thread)
                found = compiled[device](x)
                torch.cuda.current_stream().synchronize()
                check(found, models[device], x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


def test_packages_on_both_at_once(loaded: Callable[..., Any]) -> None:
    models, cpu = [loaded(0), loaded(1)], Rows()

    def run(thread: int) -> None:
        device = thread % 2
        torch.cuda.set_device(device)
        with torch.cuda.stream(torch.cuda.Stream(device)):
            for rows in range(100, 130):
                x = on(device, rows + thread)
                found = models[device](x)
                torch.cuda.current_stream().synchronize()
                check(found, cpu, x)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


def test_a_package_on_a_stream_of_the_second(loaded: Callable[..., Any]) -> None:
    """The input is written on a busy stream: a kernel on any other stream would read what was there before."""
    model, values = loaded(1), on(1, 64)
    model(values)
    x, stream = torch.zeros_like(values), torch.cuda.Stream(1)
    torch.cuda.synchronize(1)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.copy_(values)
        found = model(x)
    assert not stream.query()
    stream.synchronize()
    check(found, Rows(), values)


def test_a_graph_of_a_package_on_the_second(loaded: Callable[..., Any]) -> None:
    model, x = loaded(1, run_single_threaded=True), on(1, 64)
    with torch.cuda.device(1):
        stream = torch.cuda.Stream(1)
        with torch.cuda.stream(stream):
            model(x)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            found = model(x)
        for seed in range(3):
            torch.manual_seed(seed)
            x.normal_()
            graph.replay()
            torch.cuda.synchronize()
            check(found, Rows(), x)
