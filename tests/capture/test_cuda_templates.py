"""Templates on CUDA are Triton's own, letter for letter, in every mode, and the loops around them are native.

Asked of graphs for a GPU that is not there (cuda_graphs.py).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cuda_graphs
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._inductor.codegen.cuda_combined_scheduling import CUDACombinedScheduling
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.scheduler import BaseScheduling

import halide_backend
from halide_backend.capture.cuda_scheduling import CudaScheduling
from halide_backend.device_type import CUDA

PAGE = Path(__file__).parents[2] / "docs/design/templates.md"

_TEMPLATE = re.compile(r"async_compile\.triton\('triton_tem_\w+', '''(.*?)'''", re.DOTALL)
#: What differs without meaning: numbers of kernels, and the version of what made them.
_NAMES = re.compile(r"triton_tem_\w+|'backend_hash': '\w*'")

Size = tuple[int, ...]
Function = Callable[..., Any]
BIAS, LEFT, RIGHT = (512,), (256, 128), (128, 512)

CASES: dict[str, tuple[Function, tuple[Size, ...]]] = {
    "addmm": (lambda b, x, w: torch.addmm(b, x, w), (BIAS, LEFT, RIGHT)),
    "scaled addmm": (lambda b, x, w: torch.addmm(b, x, w, beta=2, alpha=0.5), ((256, 512), LEFT, RIGHT)),
    "epilogue": (lambda b, x, w: F.gelu(torch.addmm(b, x, w)), (BIAS, LEFT, RIGHT)),
    "prologue": (lambda b, x, w: torch.sigmoid(x) @ w + b, (BIAS, LEFT, RIGHT)),
    "linear and norm": (lambda b, x, w: F.layer_norm(torch.tanh(x) @ w + b, (512,)), (BIAS, LEFT, RIGHT)),
    "bmm": (lambda x, w: torch.softmax(torch.bmm(x * 2, w), -1), ((8, 64, 64), (8, 64, 128))),
    "baddbmm": (lambda b, x, w: torch.baddbmm(b, x, w).relu(), ((8, 64, 128), (8, 64, 64), (8, 64, 128))),
    "conv": (lambda x, w, b: F.conv2d(x.relu(), w, b, padding=1).sigmoid(), ((4, 32, 28, 28), (64, 32, 3, 3), (64,))),
    "attention": (lambda q, k, v: torch.softmax(q @ k.mT * 0.125, -1) @ v, ((2, 4, 128, 64),) * 3),
    "gradients": (lambda g, x, w: ((g * 2) @ w.t(), x.t() @ (g * 2), (g * 2).sum(0)), ((256, 512), LEFT, RIGHT)),
}

_BACKENDS = ("max_autotune_gemm_backends", "max_autotune_conv_backends")

#: Settings of Inductor that change what a template is fused with, or how that is chosen.
MODES: dict[str, dict[str, Any]] = {
    "max-autotune": {**torch._inductor.list_mode_options("max-autotune")},
    "max-autotune-no-cudagraphs": {**torch._inductor.list_mode_options("max-autotune-no-cudagraphs")},
    "no library": {"max_autotune": True} | dict.fromkeys(_BACKENDS, "TRITON"),
    "benchmark_fusion": {"max_autotune": True, "benchmark_fusion": True},
    "benchmark_kernel": {"max_autotune": True, "benchmark_kernel": True},
    "multi_kernel": {"max_autotune": True, "triton.multi_kernel": 1},
    "combo_kernels": {"max_autotune": True, "combo_kernels": True, "benchmark_combo_kernel": True},
    "debug_sync_kernel": {"max_autotune": True, "triton.debug_sync_kernel": True},
    "graph_partition": {"max_autotune": True, "graph_partition": False},
}


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if find_spec("halide_backend.kernel_library.cuda._intrinsics") is None:
        pytest.skip("the extension for CUDA is not built")
    cuda_graphs.pretend(monkeypatch)
    halide_backend.reset_stats()
    yield
    torch._dynamo.reset()


def templates(code: str) -> list[str]:
    return sorted(_NAMES.sub("", text) for text in _TEMPLATE.findall(code))


def compare(name: str, dtype: torch.dtype, **options: Any) -> str:
    """What is written for a case, after comparing it with what Triton's backend writes for it."""
    function, sizes = CASES[name]
    arguments = [(size, dtype) for size in sizes]
    wanted, _ = cuda_graphs.code_of(function, arguments, "triton", **options)
    found, _ = cuda_graphs.code_of(function, arguments, "halide_backend", **options)
    assert templates(found) == templates(wanted)
    assert len(templates(found)) >= 1
    stats: dict[str, Any] = halide_backend.stats()
    assert stats["delegated_templates"] == len(re.findall(r"triton_tem_\w+\.run\(", _TEMPLATE.sub("", wanted)))
    assert stats["delegation_reasons"] == stats["unfusing_reasons"] == {}
    assert not re.findall(r"triton_(?!tem)\w+\.run\(", found), "a loop is Triton's"
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_templates_and_what_is_fused_into_them(name: str, dtype: torch.dtype) -> None:
    compare(name, dtype, max_autotune=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["linear and norm", "gradients"])
def test_every_mode(mode: str, name: str) -> None:
    found = compare(name, torch.bfloat16, **MODES[mode])
    assert "halide_fused" in found


def test_loops_that_are_measured_apart_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TritonScheduling, "benchmark_fused_nodes", lambda *_, **__: (0.01, ""))
    monkeypatch.setattr(TritonScheduling, "benchmark_codegened_module", lambda *_, **__: (100.0, ""))
    found = compare("epilogue", torch.float32, max_autotune=True)
    assert len(re.findall(r"halide_fused\w*\(", found)) == 1


def test_a_combo_kernel_is_freed_after_its_last_part() -> None:
    def independent(x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, ...]:
        a, b = x.sin().sum(0), y.cos().sum(0)
        return z.sum(1), (a * 2).view(4, 16) @ (b + 1).view(16, 4)

    arguments = [((100, 64), torch.float32), ((30, 64), torch.float32), ((70, 33), torch.float32)]
    code, _ = cuda_graphs.code_of(independent, arguments, "halide_backend", combo_kernels=True)
    stats = halide_backend.stats()
    assert stats["native_kernels"] == 3 and stats["delegation_reasons"] == {}
    body = code[code.index("def call(") :]
    for name in re.findall(r"del (\w+)", body):
        assert name not in body[body.rindex(f"del {name}") + len(f"del {name}") :].split("return", 1)[0]


def test_reductions_of_different_orders_are_ours() -> None:
    """Triton has one kernel for them, which the scheduler would hand to `codegen_mix_order_reduction`."""
    arguments = [((4096, 1024), torch.bfloat16), ((1024,), torch.bfloat16)]
    code, _ = cuda_graphs.code_of(lambda x, w: (F.rms_norm(x, (1024,), w), (x * w).sum(0)), arguments, "halide_backend")
    assert "async_compile.triton(" not in code
    assert halide_backend.stats()["delegation_reasons"] == {}


def test_long_reductions_are_split_where_triton_has_blocks_that_cooperate() -> None:
    options = {"triton.cooperative_reductions": True}
    code, _ = cuda_graphs.code_of(lambda x: x.sum(), [((1 << 24,), torch.float32)], "halide_backend", **options)
    assert halide_backend.stats()["native_kernels"] == 2
    assert "async_compile.triton(" not in code


@pytest.mark.parametrize("partition", [True, False])
def test_a_condition_leaves_out_cuda_graphs(partition: bool) -> None:
    def branch(p: Tensor, x: Tensor) -> Any:
        return torch.ops.higher_order.cond(p.sum() > 0, lambda x: (x.sin() * 2,), lambda x: (x.cos(),), (x,))

    arguments = [((4,), torch.float32), ((64, 64), torch.float32)]
    options = {"triton.cudagraphs": True, "graph_partition": partition}
    _, wanted = cuda_graphs.code_of(branch, arguments, "triton", **options)
    _, found = cuda_graphs.code_of(branch, arguments, "halide_backend", **options)
    assert found.disable_cudagraphs_reason == wanted.disable_cudagraphs_reason is not None


def test_a_node_shows_its_loops_when_asked_for() -> None:
    _, graph = cuda_graphs.code_of(*_case("linear and norm"), "halide_backend", max_autotune=True)
    assert all(node.debug_str() for node in graph.scheduler.nodes)


def _case(name: str) -> tuple[Function, list[tuple[Size, torch.dtype]]]:
    function, sizes = CASES[name]
    return function, [(size, torch.float32) for size in sizes]


def test_loops_of_several_sizes_are_not_fused_with_a_template() -> None:
    scheduling = CudaScheduling(None, CUDA)
    base, full, row = (
        SimpleNamespace(group=("cuda:0", (numel, 1)), get_name=lambda numel=numel: f"op{numel}")
        for numel in (1, 512, 16)
    )
    template = SimpleNamespace(is_template=lambda: True, get_nodes=lambda: [base], get_name=lambda: "op1")
    loops = SimpleNamespace(is_template=lambda: False, get_nodes=lambda: [full, row], get_name=lambda: "op512_op16")
    for first, second in ((template, loops), (loops, template)):
        assert not scheduling.can_fuse_vertical(first, second)
        assert not scheduling.can_fuse_horizontal(first, second)
    (refused,) = scheduling._notes.not_fused(["op512", "op16"])
    assert refused.nodes == ("op1",)
    assert refused.reason.code == "fusion-of-several-sizes-with-template"
    assert refused.reason.detail == "op512_op16 has loops of 2 sizes"


def test_the_page_says_who_answers_what_the_scheduler_asks() -> None:
    """A new version of torch may ask for more: then say who answers, here and there."""
    asked = {name for kind in (BaseScheduling, CUDACombinedScheduling) for name in vars(kind)}
    methods = {name for name in asked if name[0] != "_" and inspect.isfunction(getattr(CudaScheduling, name))}
    missing = {name for name in methods if f"`{name}`" not in PAGE.read_text()}
    assert not missing
