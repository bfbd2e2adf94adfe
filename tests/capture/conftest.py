"""Compiles a function with this backend and compares it with eager; delegation is an error here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend import config, pipeline
from halide_backend.schedule.mapping.transposition import Transposition
from halide_backend.schedule.plan import Plan

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def native_only() -> Iterator[None]:
    """Inductor's caches off, so that code is generated; a kernel that would be delegated raises."""
    torch._dynamo.reset()
    halide_backend.reset_stats()
    patches = {"cpu_backend": "halide_backend", "force_disable_caches": True}
    with inductor_config.patch(patches), config.patch(delegate=False):
        yield


@pytest.fixture
def transpositions(monkeypatch: pytest.MonkeyPatch) -> list[Transposition]:
    """What the mappings of kernels say that are planned from now on."""
    found: list[Transposition] = []
    schedule = pipeline.schedule_kernel

    def watched(*arguments: Any) -> Any:
        scheduled = schedule(*arguments)
        if scheduled.kernel.plan.mapping.transposition is not None:
            found.append(scheduled.kernel.plan.mapping.transposition)
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_kernel", watched)
    return found


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in `value`, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for part in value for tensor in tensors(part)] if isinstance(value, (tuple, list)) else []


def run(function: Function, arguments: tuple[torch.Tensor, ...], compiled: bool, **options: Any) -> list[torch.Tensor]:
    """Results, gradients of a fixed random projection of them, and the arguments afterwards."""
    own = [a.detach().clone().requires_grad_(a.requires_grad) for a in arguments]
    target = torch.compile(function, **{"dynamic": False, **options}) if compiled else function
    results = tensors(target(*own))
    roots = [r for r in results if r.requires_grad]
    gradients: list[torch.Tensor] = []
    if roots:
        generator = torch.Generator().manual_seed(1)
        loss = sum((r * torch.randn(r.shape, generator=generator, dtype=r.dtype)).sum() for r in roots)
        leaves = [a for a in own if a.requires_grad]
        gradients = list(torch.autograd.grad(loss, leaves))  # type: ignore[arg-type]
    return [*(r.detach() for r in results), *gradients, *(a.detach() for a in own)]


@pytest.fixture
def check() -> Callable[..., dict[str, object]]:
    """check(function, *arguments) compares with eager and returns the statistics of the compiled run."""

    def compare(
        function: Function, *arguments: torch.Tensor, tolerance: float = 1e-5, **options: Any
    ) -> dict[str, object]:
        expected = run(function, arguments, compiled=False)
        halide_backend.reset_stats()
        actual = run(function, arguments, compiled=True, **options)
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected):
            torch.testing.assert_close(a, e, rtol=max(tolerance, 1.3e-6), atol=tolerance, equal_nan=True)
        statistics = halide_backend.stats()
        assert statistics["native_kernels"], "nothing was compiled"
        assert not statistics["delegated_kernels"]
        return statistics

    return compare


def _scheduled(monkeypatch: pytest.MonkeyPatch, part: str) -> list[Any]:
    """The `part`, "plan" or "text", of each kernel that is scheduled from now on."""
    found: list[Any] = []
    schedule = pipeline.schedule_kernel

    def watched(*arguments: Any) -> Any:
        scheduled = schedule(*arguments)
        found.append(getattr(scheduled.kernel, part))
        return scheduled

    monkeypatch.setattr(pipeline, "schedule_kernel", watched)
    return found


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans of kernels that are scheduled from now on."""
    return _scheduled(monkeypatch, "plan")


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of kernels that are scheduled from now on."""
    return _scheduled(monkeypatch, "text")
