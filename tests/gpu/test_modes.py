"""Every mode of torch.compile on operators that have templates: forward and backward, values against float64's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code
from torch.nn.attention.flex_attention import flex_attention

import halide_backend

pytestmark = pytest.mark.gpu

Function = Callable[..., Tensor]
Native = Callable[[], int]


def block(x: Tensor, scale: Tensor, into: Tensor, bias: Tensor, back: Tensor) -> Tensor:
    """A layer of a transformer: attention of 12 heads and a linear layer, each after a norm."""
    y = F.layer_norm(x, x.shape[-1:], scale)
    q, k, v = (y @ into + bias).unflatten(-1, (3, 12, -1)).permute(2, 0, 3, 1, 4)
    y = torch.softmax((q @ k.mT * 0.125).float(), -1).to(v.dtype) @ v
    x = x + y.transpose(1, 2).flatten(2) @ back
    return x + F.gelu(F.linear(F.layer_norm(x, x.shape[-1:], scale), back, bias[: x.shape[-1]]))


def flex(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    if q.dtype is torch.float64:
        distance = torch.arange(q.shape[2], device=q.device)[:, None] - torch.arange(k.shape[2], device=q.device)
        return (torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 - 0.01 * distance, -1) @ v).tanh()
    biased = flex_attention(q * 1, k, v, score_mod=lambda score, b, h, i, j: score - 0.01 * (i - j))
    assert isinstance(biased, Tensor)
    return biased.tanh()


#: Functions, and the shapes of what they take.
OPERATORS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "linear": (lambda x, w, b: F.gelu(F.linear(torch.tanh(x), w, b)), ((512, 256), (384, 256), (384,))),
    "addmm": (lambda b, x, w: F.layer_norm(torch.addmm(b, x, w), (384,)), ((384,), (512, 256), (256, 384))),
    "bmm": (lambda x, w: torch.softmax(torch.bmm(x * 2, w) * 0.1, -1), ((8, 256, 64), (8, 64, 192))),
    "conv": (lambda x, w, b: F.conv2d(x.relu(), w, b, padding=1).sigmoid(), ((8, 32, 28, 28), (64, 32, 3, 3), (64,))),
    "block": (block, ((4, 197, 768), (768,), (768, 2304), (2304,), (768, 768))),
    "flex": (flex, ((2, 4, 256, 64),) * 3),
}
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2}
TEMPLATES_ALONE = {"max_autotune_gemm_backends": "TRITON", "max_autotune_conv_backends": "TRITON"}

#: Settings of Inductor -> besides `max_autotune`.
SETTINGS: dict[str, dict[str, Any]] = {
    "templates alone": TEMPLATES_ALONE,
    "benchmark_fusion": {"benchmark_fusion": True},
    "benchmark_kernel": {"benchmark_kernel": True},
    "multi_kernel": {"triton.multi_kernel": 1},
    "combo_kernels": {"combo_kernels": True, "benchmark_combo_kernel": True},
    "cooperative_reductions": {"triton.cooperative_reductions": True},
    "coordinate_descent_tuning": {"coordinate_descent_tuning": True},
    "debug_sync_kernel": {"triton.debug_sync_kernel": True},
    "unpartitioned": {"graph_partition": False, "triton.cudagraphs": True},
}


@pytest.fixture(autouse=True)
def few_candidates() -> Iterator[None]:
    """Which candidate wins says nothing here; and float32 is float32."""
    counters.clear()
    precise = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    with precise, inductor_config.patch({"test_configs.max_mm_configs": 2}):
        yield


def check(name: str, dtype: torch.dtype, training: bool, **how: Any) -> None:
    """Compile the operator, and run it as often as CUDA graphs take to be recorded and replayed."""
    function, shapes = OPERATORS[name]
    compiled = torch.compile(function, dynamic=False, **how)
    given = [0.05 * torch.randn(shape, device="cuda").to(dtype) if len(shape) > 1 else
             torch.rand(shape, device="cuda").to(dtype) for shape in shapes]  # fmt: skip
    if name in ("bmm", "flex", "conv", "block"):
        given[0] = given[0] * 20
    wanted = results(function, [x.double() for x in given], training)
    eager = results(function, given, training)
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        found = [result.clone() for result in results(compiled, given, training)]
    for one, other, rounded in zip(found, wanted, eager, strict=True):
        # A gradient through a softmax in bfloat16 has an error of 3 % of its largest element in eager, too.
        tolerance = TOLERANCES[dtype] * float(other.abs().max()) + 2 * float((rounded.double() - other).abs().max())
        torch.testing.assert_close(one.double(), other, rtol=0, atol=tolerance)


def results(function: Function, given: list[Tensor], training: bool) -> list[Tensor]:
    if not training:
        with torch.no_grad():
            return [function(*given)]
    leaves = [x.detach().requires_grad_() for x in given]
    output = function(*leaves)
    outwards = torch.linspace(-1, 1, output.shape[-1], device="cuda", dtype=output.dtype).expand_as(output)
    return [output.detach(), *torch.autograd.grad(output, leaves, outwards)]


directions = pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])


@directions
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("name", OPERATORS)
def test_modes(native: Native, name: str, mode: str, training: bool) -> None:
    check(name, torch.bfloat16, training, mode=mode)
    assert native() >= 1 or name == "linear"
    if mode in ("reduce-overhead", "max-autotune"):
        assert counters["inductor"]["cudagraph_skips"] == 0


@directions
@pytest.mark.parametrize("name", OPERATORS)
def test_templates_of_float32(native: Native, name: str, training: bool) -> None:
    with inductor_config.patch(TEMPLATES_ALONE):
        check(name, torch.float32, training, mode="max-autotune-no-cudagraphs")
    native()
    assert int(halide_backend.stats()["delegated_templates"]) >= 1  # type: ignore[call-overload]


@directions
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("name", ["linear", "block"])
def test_settings(native: Native, name: str, settings: str, training: bool) -> None:
    check(name, torch.bfloat16, training, options={"max_autotune": True, **SETTINGS[settings]})
    native()
    if settings == "templates alone":
        assert int(halide_backend.stats()["delegated_templates"]) >= 1  # type: ignore[call-overload]


@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_frozen_parameters(native: Native, mode: str) -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(16 * 14 * 14, 32), torch.nn.GELU(),
    ).cuda().eval()  # fmt: skip
    x = torch.randn(4, 8, 14, 14, device="cuda")
    with torch.no_grad(), inductor_config.patch(freezing=True):
        compiled = torch.compile(model, mode=mode)
        for _ in range(3):
            found = compiled(x).clone()
        wanted = model.double()(x.double())
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=2e-4 * float(wanted.abs().max()))
    assert native() >= 1


@pytest.mark.parametrize("partition", [True, False])
def test_a_condition_under_cuda_graphs(native: Native, partition: bool) -> None:
    def branch(p: Tensor, x: Tensor) -> Tensor:
        y = x * 3
        return torch.cond(p.sum() > 0, lambda y: y.sin() * 2, lambda y: y.cos(), (y,)) + 1  # type: ignore[no-any-return]

    x = torch.randn(64, 64, device="cuda")
    with inductor_config.patch(graph_partition=partition):
        compiled = torch.compile(branch, mode="reduce-overhead")
        for sign in (1, -1, 1, -1, 1):
            p = torch.full((4,), float(sign), device="cuda")
            wanted = (torch.sin(x * 3) * 2 if sign > 0 else torch.cos(x * 3)) + 1
            torch.testing.assert_close(compiled(p, x).clone(), wanted)
    assert native() >= 2


def test_reductions_are_split_where_blocks_do_not_cooperate(native: Native) -> None:
    x = torch.randn(1 << 24, device="cuda")
    with inductor_config.patch({"triton.cooperative_reductions": True}):
        found = torch.compile(lambda x: x.sum())(x)
    torch.testing.assert_close(found.double(), x.double().sum(), rtol=1e-5, atol=1e-2)
    assert native() == 2


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0)], ids=str)
def test_the_place_of_a_maximum_in_permuted_memory(native: Native, order: tuple[int, ...]) -> None:
    x = torch.randn(6, 50, 40, device="cuda").permute(order)
    assert torch.equal(torch.compile(lambda x: x.argmax())(x), x.argmax())
    assert native() >= 1


def kernels_in_profile(function: Callable[[], Any]) -> set[str]:
    """Names of what runs on the GPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    return {event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA}


def test_a_profiler_shows_the_names_of_the_wrapper(native: Native) -> None:
    x = torch.randn(128, 1000, device="cuda")
    compiled = torch.compile(lambda x: (torch.softmax(x, -1), x.t().sin() @ x))
    _, (code,) = run_and_get_code(compiled, x)
    names = set(re.findall(r"(halide_fused_\w+) = load_kernel\(", code))
    shown = {name for name in kernels_in_profile(lambda: compiled(x)) if name.startswith("halide_")}
    # One kernel or two: torch 2.11 fuses both.
    assert len(names) == native() >= 1
    assert shown == {f"{name}__0" for name in names}


def test_one_artifact_has_the_names_of_two_graphs() -> None:
    x = torch.randn(100, 300, device="cuda")
    first = torch.compile(lambda x: torch.softmax(x, -1))
    second = torch.compile(lambda x: (x.sum(), torch.softmax(x.sin() @ x.t() @ x, -1))[1])
    first(x), second(x)
    shown = kernels_in_profile(lambda: (first(x), second(x)))
    assert len({name for name in shown if re.fullmatch(r"halide_fused_.*softmax.*__0", name)}) == 2


def test_a_profiler_shows_what_is_launched_together() -> None:
    tensors = [torch.randn(1000 + k, device="cuda") for k in range(8)]
    compiled = torch.compile(lambda xs: torch._foreach_mul(torch._foreach_sin(xs), 2.0))
    compiled(tensors)
    shown = kernels_in_profile(lambda: compiled(tensors))
    assert any(re.fullmatch(r"halide_fused_\w+__joint", name) for name in shown)
    assert not any(name.startswith("_kernel") for name in shown)
