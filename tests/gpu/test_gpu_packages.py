"""AOTInductor packages for a GPU: made and loaded here, and loaded in a process that knows nothing of this package.

Where loading a package of PyTorch's own crashes, run them with the shared C++ library first, as `benchmarks/gpu.sh
OUT_DIR tests` does (docs/how-to/ship-a-model.md, "If a package crashes when it is loaded").
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halide_backend.capture.scheduling import HalideScheduling
from halide_backend.errors import Unsupported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler (g++), as AOTInductor does"),
]

Native = Callable[[], int]
FAST = {"aot_inductor.precompile_headers": False}
BATCH = torch.export.Dim("batch", min=2, max=5000)


@pytest.fixture(scope="module", autouse=True)
def pytorchs_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An error where a package with Triton's kernel crashes its process, before one of ours crashes this one."""
    if not torch.cuda.is_available():
        return
    path = package(tmp_path_factory.mktemp("stock"), nn.ReLU(), (torch.ones(4, device="cuda"),), cuda_backend="triton")
    script = f"import torch; torch._inductor.aoti_load_package({path!r})(torch.ones(4, device='cuda'))"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"stock PyTorch cannot load its own package ({done.returncode}): {done.stderr}"


class Embedded(nn.Module):
    """Rows that are normed, looked up, reduced in both directions, and an output that is absent."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.linear, self.norm, self.table = nn.Linear(64, 64), nn.LayerNorm(64), nn.Embedding(10, 64)

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor | None, ...]:
        hidden = torch.softmax(self.norm(F.gelu(self.linear(x))) + self.table(index), -1)
        return hidden, None, torch.tanh(hidden.sum(0)), hidden[:, 0] * x.shape[0]


SHAPES = {"x": {0: BATCH}, "index": {0: BATCH}}


class Folded(nn.Module):
    """What depends on weights alone is computed when they are loaded."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.weight, self.bias = nn.Parameter(torch.randn(32, 32)), nn.Parameter(torch.randn(32))

    def forward(self, x: Tensor) -> Tensor:
        return x @ (torch.exp(self.weight) + 1).t() + torch.sin(self.bias) * 2


class Scaled(nn.Module):
    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        return torch.softmax(x * scale, -1) + shift


def on_gpu(model: nn.Module) -> nn.Module:
    return model.eval().cuda()


def embedded_inputs(rows: int) -> tuple[Tensor, Tensor]:
    return torch.randn(rows, 64, device="cuda"), torch.arange(rows, device="cuda") % 10


def package(folder: Path, model: nn.Module, inputs: tuple[Tensor, ...], shapes: Any = None, **settings: Any) -> str:
    """A package's path."""
    with torch.no_grad():
        exported = torch.export.export(model, inputs, dynamic_shapes=shapes)
        return str(
            torch._inductor.aoti_compile_and_package(
                exported, package_path=str(folder / "model.pt2"), inductor_configs={**FAST, **settings}
            )
        )


def largest_error(model: nn.Module, found: Any, inputs: tuple[Tensor, ...]) -> float:
    """Of all results, relative to the largest number of each, against the model in float64."""
    doubled = [x.double() if x.is_floating_point() else x for x in inputs]
    parameters = {name: p.detach().double() for name, p in model.named_parameters()}
    wanted = torch.func.functional_call(model, parameters, tuple(doubled))
    pairs = list(zip(found, wanted, strict=True)) if isinstance(wanted, tuple) else [(found, wanted)]
    assert [a is None for a, _ in pairs] == [b is None for _, b in pairs]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs if b is not None)


def test_dynamic_sizes_and_other_weights(tmp_path: Path, native: Native) -> None:
    model = on_gpu(Embedded())
    loaded = torch._inductor.aoti_load_package(package(tmp_path, model, embedded_inputs(8), SHAPES))
    assert native() >= 2
    for rows in (8, 2, 33, 4099):
        inputs = embedded_inputs(rows)
        assert largest_error(model, loaded(*inputs), inputs) < 1e-5
    other = on_gpu(Embedded(seed=1))
    loaded.load_constants(other.state_dict(), check_full_update=True)
    assert largest_error(other, loaded(*inputs), inputs) < 1e-5


def test_a_process_without_this_package(tmp_path: Path) -> None:
    """Ten loads of one package in a process leave nothing in the GPU's memory.

    The driver tells what the whole GPU has in use. Other processes may take and give back some meanwhile, so the loads
    are repeated until it has not changed; a leak of these would show every time.
    """
    model = on_gpu(Embedded())
    inputs = embedded_inputs(100)
    path = package(tmp_path, model, inputs, SHAPES)
    torch.save((inputs, [*filter(lambda each: each is not None, model(*inputs))]), tmp_path / "values.pt")
    script = f"""
import gc, sys, time, torch
inputs, wanted = torch.load({str(tmp_path / "values.pt")!r})
def run():
    model = torch._inductor.aoti_load_package({path!r})
    found = [each for each in model(*inputs) if each is not None]
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
def used():
    gc.collect(); torch.cuda.synchronize(); torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return total - free
def growth():
    before = used()
    for _ in range(10): run()
    return used() - before
run(); run()
found = []
while not found or abs(found[-1]) >= 2 << 20:
    assert len(found) < 40, found
    time.sleep(0.5 * bool(found))
    found.append(growth())
assert not [name for name in sys.modules if "halide" in name]
with open("/proc/self/maps") as maps: assert "libHalide" not in maps.read()
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_constants_are_folded_when_weights_are_loaded(tmp_path: Path, native: Native) -> None:
    model, x = on_gpu(Folded()), torch.randn(5, 32, device="cuda")
    path = package(tmp_path, model, (x,), **{"aot_inductor.use_runtime_constant_folding": True})
    assert native() >= 1
    loaded = torch._inductor.aoti_load_package(path)
    assert largest_error(model, loaded(x), (x,)) < 1e-5
    other = on_gpu(Folded(seed=1))
    loaded.load_constants(other.state_dict(), check_full_update=True)
    assert largest_error(other, loaded(x), (x,)) < 1e-5


def test_a_stream_of_the_callers(tmp_path: Path) -> None:
    """The input is written on a stream that is busy; a kernel on any other stream would read what was there before."""
    model, inputs = on_gpu(Embedded()), embedded_inputs(64)
    loaded = torch._inductor.aoti_load_package(package(tmp_path, model, inputs))
    loaded(*inputs)
    stream, x = torch.cuda.Stream(), torch.zeros_like(inputs[0])
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.copy_(inputs[0])
        found = loaded(x, inputs[1])
    assert not stream.query()
    stream.synchronize()
    assert largest_error(model, found, inputs) < 1e-5


def test_a_cuda_graph(tmp_path: Path) -> None:
    """Loaded for one thread: else torch asks an event whether a run has ended, which no graph can record."""
    model, inputs = on_gpu(Embedded()), embedded_inputs(64)
    loaded = torch._inductor.aoti_load_package(package(tmp_path, model, inputs), run_single_threaded=True)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        loaded(*inputs)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = loaded(*inputs)
    for seed in range(3):
        torch.manual_seed(seed)
        inputs[0].normal_()
        graph.replay()
        torch.cuda.synchronize()
        assert largest_error(model, found, inputs) < 1e-5


@pytest.mark.parametrize(
    ("scale", "shift"),
    [
        (torch.tensor(0.7), torch.tensor((1 << 53) + 1)),
        (torch.tensor(0.7, dtype=torch.float64), torch.tensor(True)),
        (torch.tensor(0.5, dtype=torch.bfloat16), torch.tensor(-3, dtype=torch.int16)),
    ],
    ids=["float32-int64", "float64-bool", "bfloat16-int16"],
)
def test_scalars_on_the_cpu(tmp_path: Path, native: Native, scale: Tensor, shift: Tensor) -> None:
    x = torch.randn(40, 50, device="cuda")
    loaded = torch._inductor.aoti_load_package(package(tmp_path, Scaled(), (x, scale, shift)))
    assert native() >= 1
    for factor in (1, 3):
        torch.testing.assert_close(loaded(x, scale * factor, shift), Scaled()(x, scale * factor, shift))


def test_an_input_that_is_not_aligned(tmp_path: Path) -> None:
    model, inputs = on_gpu(Embedded()), embedded_inputs(64)
    loaded = torch._inductor.aoti_load_package(package(tmp_path, model, inputs))
    shifted = torch.empty(64 * 64 + 1, device="cuda")[1:].view(64, 64).copy_(inputs[0])
    assert largest_error(model, loaded(shifted, inputs[1]), inputs) < 1e-5


def test_kernels_of_tritons_beside_native_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codegen = HalideScheduling._codegen

    def all_but_tanh(self: Any, nodes: Any) -> None:
        if any("tanh" in str(origin.target) for node in nodes for origin in node.node.get_origins()):
            raise Unsupported("not-a-loop-node", "a test")
        codegen(self, nodes)

    monkeypatch.setattr(HalideScheduling, "_codegen", all_but_tanh)
    import halide_backend

    model = on_gpu(Embedded())
    path = package(tmp_path, model, embedded_inputs(8), SHAPES)
    stats = halide_backend.stats()
    assert stats["native_kernels"] >= 1 and stats["delegated_kernels"] == 1
    loaded = torch._inductor.aoti_load_package(path)
    for rows in (8, 100):
        inputs = embedded_inputs(rows)
        assert largest_error(model, loaded(*inputs), inputs) < 1e-5


def wrapper_source(path: str) -> str:
    with zipfile.ZipFile(path) as files:
        return next(files.read(name).decode() for name in files.namelist() if name.endswith(".wrapper.cpp"))


def test_values_printed_around_a_kernel(tmp_path: Path) -> None:
    """What PyTorch's own test_aoti_debug_printer_codegen asks of Triton's kernel, whose name it looks for."""
    model = on_gpu(nn.Linear(16, 6))
    settings = {"aot_inductor.debug_intermediate_value_printer": "2"}
    path = package(tmp_path, nn.Sequential(model, nn.ReLU()), (torch.randn(2, 8, 16, device="cuda"),), **settings)
    source = wrapper_source(path)
    (name,) = set(re.findall(r"launch - (halide_\w+) - ", source))
    for when in ("before", "after"):
        titles = re.findall(rf"aoti_torch_print_tensor_handle\(\w+, \"{when}_launch - (\w+) - ", source)
        assert name in titles and any(title.endswith("mm_out") for title in titles)
    load = f"import torch; torch._inductor.aoti_load_package({path!r})(torch.randn(2, 8, 16, device='cuda'))"
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=True)
    assert f"before_launch - {name} - " in done.stdout and f"after_launch - {name} - " in done.stdout


def test_a_kernel_that_is_called_twice_is_defined_once(tmp_path: Path) -> None:
    """PyTorch's own test_reuse_kernel asks it of Triton's kernel, whose name it looks for."""

    class Sines(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            b = torch.sin(x) @ y
            return b @ torch.sin(b)

    inputs = (torch.randn(87, 87, device="cuda"), torch.randn(87, 87, device="cuda"))
    path = package(tmp_path, Sines(), inputs)
    source = wrapper_source(path)
    assert source.count("static inline void halide_fused_") == 1
    assert len(re.findall(r" halide_fused_sin_0\(\(", source)) == 2
    assert largest_error(Sines(), torch._inductor.aoti_load_package(path)(*inputs), inputs) < 1e-4


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_devices(tmp_path: Path) -> None:
    model, inputs = on_gpu(Embedded()), embedded_inputs(64)
    path = package(tmp_path, model, inputs)
    for device in (1, 0, 1):
        loaded = torch._inductor.aoti_load_package(path, device_index=device)
        found = loaded(*(x.to(f"cuda:{device}") for x in inputs))
        assert found[0].device.index == device
        assert largest_error(model, [x if x is None else x.to("cuda:0") for x in found], inputs) < 1e-5
