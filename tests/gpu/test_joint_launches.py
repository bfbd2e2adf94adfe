"""Short independent kernels in one launch: what they compute, what must not run together, and how many launches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.gpu
Native = Callable[[], int]

LENGTHS = (1, 3, 64, 77, 1000, 1024, 4096, 5001, 0, 65_536)


def tensors(count: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.randn(LENGTHS[k % len(LENGTHS)], device="cuda", dtype=dtype) for k in range(count)]


def launches(function: Callable[[], Any]) -> list[str]:
    """Names of the kernels that run on the GPU."""
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        function()
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return [event.name for event in kernels if "Memcpy" not in event.name and "Memset" not in event.name]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int32], ids=str)
@pytest.mark.parametrize("count", [4, 37, 150])
def test_a_foreach_operator(native: Native, count: int, dtype: torch.dtype) -> None:
    def update(xs: list[Tensor], ys: list[Tensor]) -> list[Tensor]:
        # Exact in bfloat16, too: eager rounds the product.
        return list(torch._foreach_add(torch._foreach_mul(xs, 2), ys))

    xs, ys = ([t.to(dtype) for t in tensors(count)] for _ in range(2))
    compiled = torch.compile(update, dynamic=False)
    for found, wanted in zip(compiled(xs, ys), update(xs, ys), strict=True):
        torch.testing.assert_close(found, wanted)
    assert native() >= 1
    # A table has room for about fifty of these; there is a kernel more for what does not take part.
    assert len(launches(lambda: compiled(xs, ys))) <= 1 + count // 30


# SGD makes its state in the first step, which CUDA graphs then overwrite.
@pytest.mark.parametrize(
    ("optimizer", "mode"),
    [(torch.optim.AdamW, "default"), (torch.optim.AdamW, "reduce-overhead"), (torch.optim.SGD, "default")],
    ids=str,
)
def test_an_optimizer(native: Native, optimizer: Any, mode: str) -> None:
    def parameters() -> list[Tensor]:
        torch.manual_seed(1)
        shapes = [(64, 33), (64,), (128, 64), (7,), (1, 1), (256, 300), (300,), (64, 33), (64,)]
        return [torch.randn(shape, device="cuda", requires_grad=True) for shape in shapes]

    options = {"lr": torch.tensor(0.01, device="cuda"), "weight_decay": 0.1, "foreach": True}
    options |= {"capturable": True} if optimizer is torch.optim.AdamW else {"momentum": 0.9}
    ours, eager = parameters(), parameters()
    one, other = optimizer(ours, **options), optimizer(eager, **options)
    step = torch.compile(one.step, mode=mode)
    for _ in range(4):
        for p, q in zip(ours, eager):
            p.grad = q.grad = torch.randn_like(p)
        step()
        other.step()
    for p, q in zip(ours, eager):
        torch.testing.assert_close(p, q, rtol=1e-5, atol=1e-6)
    assert native() >= 1
    if mode == "default":
        assert len(launches(step)) <= 5


def test_what_depends_on_each_other_runs_one_after_another(native: Native) -> None:
    def chain(xs: list[Tensor]) -> list[Tensor]:
        for x, y in itertools.pairwise(xs):
            y.add_(x.flip(0))
        for x, y in itertools.pairwise(xs):
            x.mul_(y.flip(0))
        return [x + 1 for x in xs]

    xs = [torch.randn(1000, device="cuda") for _ in range(12)]
    copies = [x.clone() for x in xs]
    for found, wanted in zip(torch.compile(chain, dynamic=False)(copies), chain(xs), strict=True):
        torch.testing.assert_close(found, wanted)
    for found, wanted in zip(copies, xs, strict=True):
        torch.testing.assert_close(found, wanted)
    assert native() >= 1


def test_a_value_that_many_read_is_not_overwritten(native: Native) -> None:
    def several(x: Tensor, ys: list[Tensor]) -> list[Tensor]:
        z = x.exp().flip(0)
        return [torch.cat([z * k, y]) for k, y in enumerate(ys)] + [z.flip(0).mul_(2)]

    x, ys = torch.randn(5000, device="cuda"), [torch.randn(100 + k, device="cuda") for k in range(9)]
    for found, wanted in zip(torch.compile(several, dynamic=False)(x, ys), several(x, ys), strict=True):
        torch.testing.assert_close(found, wanted)
    assert native() >= 1


def test_a_bad_index_is_an_error(native: Native) -> None:
    """In a process of its own: an error of the kernel leaves the context unusable."""
    import subprocess
    import sys

    script = (
        "import torch, torch._inductor.config as c; import halide_backend\n"
        "c.cuda_backend = 'halide_backend'; c.force_disable_caches = True\n"
        "xs = [torch.randn(50 + k, device='cuda') for k in range(8)]\n"
        "i = torch.full((7,), 99, device='cuda')\n"
        "print([r.shape for r in torch.compile(lambda xs, i: [x[i] for x in xs])(xs, i)])\n"
        "torch.cuda.synchronize()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "CUDA" in done.stderr, done.stderr[-2000:]
