"""The pass of a device: when it rewrites graphs, what runs before it, and what Inductor's cache keys learn from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config
from torch._inductor.choices import InductorChoices
from torch._inductor.codegen.common import get_custom_backend_pass_for_device
from torch._inductor.custom_graph_pass import CustomGraphModulePass
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx

import halide_backend.plugin
from halide_backend.device_type import CPU, CUDA, DeviceType
from halide_backend.graph_passes.device_pass import DevicePass
from halide_backend.graph_passes.reduction_splits import EvenSplits
from halide_backend.products import calibration_store
from halide_backend.products.calibration import SIZES, Calibration
from halide_backend.products.product import FORMS


class Present(CustomGraphModulePass):
    """What somebody else registered; it keeps the code of graphs as they are when it runs."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, graph: GraphModule) -> None:
        self.seen.append(str(graph.graph))

    def uuid(self) -> str:
        return "present"


@pytest.fixture(autouse=True)
def inductors_own_choices() -> Iterator[None]:
    """An earlier test of this process may have left this backend's."""
    with V.set_choices_handler(InductorChoices()):
        yield


def argmax(device: str) -> GraphModule:
    """A graph that is rewritten on a GPU: the largest of 131,072 elements."""
    with FakeTensorMode():
        return make_fx(lambda x: x.argmax())(torch.empty(1 << 17, device=device))


def test_a_graph_is_rewritten_after_the_pass_that_was_there() -> None:
    present, graph = Present(), argmax("cuda")
    before = str(graph.graph)
    with inductor_config.patch(cuda_backend="halide_backend"):
        DevicePass(CUDA, present)(graph)
    assert present.seen == [before] and str(graph.graph) != before
    assert isinstance(V.choices, EvenSplits)


def test_graphs_of_other_backends_are_left_alone() -> None:
    present, graph = Present(), argmax("cuda")
    before = str(graph.graph)
    with inductor_config.patch(cuda_backend="triton"):
        DevicePass(CUDA, present)(graph)
    assert present.seen == [before] and str(graph.graph) == before
    assert not isinstance(V.choices, EvenSplits)


@pytest.mark.parametrize(("kind", "sums"), [(CPU, 1), (CUDA, 2)], ids=["cpu", "cuda"])
def test_a_gpu_sums_up_batches_in_two_steps(kind: DeviceType, sums: int) -> None:
    with FakeTensorMode():
        graph = make_fx(lambda x: x.sum((0, 2, 3)))(torch.empty(40, 8, 16, 16, device=kind.name))
    with inductor_config.patch(cpu_backend="halide_backend", cuda_backend="halide_backend"):
        DevicePass(kind, None)(graph)
    assert len(graph.graph.find_nodes(op="call_function", target=torch.ops.aten.sum.dim_IntList)) == sums


def test_each_device_has_its_own() -> None:
    halide_backend.plugin.register()
    graph = symbolic_trace(lambda x: -x)
    with inductor_config.patch(cpu_backend="halide_backend", cuda_backend="halide_backend"):
        registered(CPU)(graph)
        assert not isinstance(V.choices, EvenSplits)
        registered(CUDA)(graph)
        assert isinstance(V.choices, EvenSplits)


def registered(kind: DeviceType) -> Any:
    return get_custom_backend_pass_for_device(kind.name)


@pytest.mark.parametrize("kind", [CPU, CUDA], ids=lambda kind: kind.name)
def test_keys_of_other_backends_are_those_of_the_pass_that_was_there(kind: DeviceType) -> None:
    setting = str(kind.setting)
    with inductor_config.patch({setting: kind.delegate}):
        assert DevicePass(kind, Present()).uuid() == "present"
        assert DevicePass(kind, None).uuid() is None
    with inductor_config.patch({setting: "halide_backend"}):
        assert "present" in DevicePass(kind, Present()).uuid()


def test_keys_change_with_the_choice_of_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path))
    passes = DevicePass(CPU, None)
    with inductor_config.patch(cpu_backend="halide_backend"):
        seen = [passes.uuid()]
        with torch.backends.mkldnn.flags(enabled=False):
            seen.append(passes.uuid())
        gains = {form: (2.0,) * len(SIZES) ** 3 for form in FORMS}
        calibration_store.save(Calibration(gains), torch.get_num_threads())
        seen.append(passes.uuid())
        assert len(set(seen)) == 3
        assert passes.uuid() == seen[-1]


def test_rewriting_graphs_imports_no_halide() -> None:
    """A process that loads kernels which are stored needs no compiler."""
    program = "import sys, halide_backend.graph_passes.device_pass; sys.exit('halide' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
