"""Which short pipelines a GPU is given together, asked of graphs on a CPU, which runs the groups in their order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code

from halide_backend.capture import kernel_group, scheduling

Groups = Callable[..., list[int]]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Groups]:
    """groups(function, *arguments): how many pipelines each launch has; what it computes is eager's."""
    begin = scheduling.HalideScheduling.__init__

    def together(self: Any, *arguments: Any) -> None:
        begin(self, *arguments)
        self._together = True

    def compiled(function: Callable[..., Any], *arguments: Any) -> list[int]:
        copies = _copied(arguments)
        wanted = function(*arguments)
        found, (code,) = run_and_get_code(torch.compile(function, dynamic=False), *copies)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(copies, arguments)
        return [part.count("(r'''") for part in code.split("load_kernel(")[1:]]

    monkeypatch.setattr(scheduling.HalideScheduling, "__init__", together)
    # What follows from `together` is for a GPU.
    monkeypatch.setattr(kernel_group, "_FEWEST_TOGETHER", 1 << 30)
    torch._dynamo.reset()
    with inductor_config.patch(cpu_backend="halide_backend", force_disable_caches=True):
        yield compiled


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else type(value)(map(_copied, value))


def tensors(*lengths: int) -> list[Tensor]:
    return [torch.randn(length) for length in lengths]


def test_a_foreach_operator_is_one_launch(groups: Groups) -> None:
    assert groups(lambda xs, ys: torch._foreach_mul(xs, ys), tensors(3, 64, 77, 500), tensors(3, 64, 77, 500)) == [4]


def test_what_is_overwritten_is_read_first(groups: Groups) -> None:
    def overwritten(xs: list[Tensor]) -> list[Tensor]:
        for x, y in itertools.pairwise(xs):
            y[:40].add_(x.flip(0)[:40])
        return [x * 3 for x in xs]

    found = groups(overwritten, tensors(50, 60, 70, 80))
    assert len(found) >= 3


def test_long_kernels_are_launched_alone(groups: Groups) -> None:
    found = groups(lambda xs: [x + 1 for x in xs], tensors(100, 1 << 21, 200, 3 << 20, 300, 400))
    assert sorted(found) == [1, 1, 1, 1, 2] and sum(found) == 6


def test_reductions_are_launched_alone(groups: Groups) -> None:
    found = groups(lambda xs: [x.sum() if k % 2 else x + 1 for k, x in enumerate(xs)], tensors(100, 200, 300, 400))
    assert max(found) <= 2


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD], ids=lambda o: o.__name__)
def test_an_optimizer_takes_few_launches(groups: Groups, optimizer: Any) -> None:
    del groups
    shapes = [(64, 33), (64,), (128, 64), (7,), (1, 1), (256, 30), (300,), (64, 33), (64,)]

    def made() -> tuple[list[Tensor], Any]:
        torch.manual_seed(1)
        parameters = [torch.randn(shape, requires_grad=True) for shape in shapes]
        momentum = {"momentum": 0.9} if optimizer is torch.optim.SGD else {}
        return parameters, optimizer(parameters, lr=0.01, weight_decay=0.1, foreach=True, **momentum)

    (ours, one), (eager, other) = made(), made()
    step = torch.compile(one.step)
    for _ in range(3):
        for p, q in zip(ours, eager, strict=True):
            p.grad = torch.randn_like(p)
            q.grad = p.grad.clone()
        _, codes = run_and_get_code(step)
        other.step()
        assert all(code.count("load_kernel(") <= 3 for code in codes)
    torch.testing.assert_close(ours, eager, rtol=1e-5, atol=1e-6)
