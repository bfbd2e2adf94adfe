"""What tests of the whole way share: compile a function with this backend and compare it with eager."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the files of tests/golden anew")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is `sampled(n)`, one case of n is run by default, and the others are long."""
    cases = Counter[str]()
    for item in items:
        if sampled := item.get_closest_marker("sampled"):
            function = item.nodeid.partition("[")[0]
            if cases[function] % sampled.args[0]:
                item.add_marker(pytest.mark.long)
            cases[function] += 1


def pytest_collection_finish() -> None:
    """What collection has imported stays, and need not be looked through again and again: 36 seconds of processor time
    in place of 43 for test_lines_of_columns.py (AMD Zen 3)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@dataclass(frozen=True)
class Compiled:
    """What one compiled call gave: everything returned and everything mutated, and how it was compiled.

    `kernels` counts Halide pipelines, `launches` the calls in the wrapper, `code` is the wrapper's text (all graphs).
    """

    results: list[Any]
    kernels: int
    launches: int
    code: str


@pytest.fixture(scope="session")
def kernel_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of kernels for this session, so that no test depends on an earlier run."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def compiled(kernel_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Compiled]]:
    """A function that compiles `function`, calls it with copies of `arguments`, and returns a `Compiled`.

    It fails if any loop kernel is left to another backend, or a group that was fused falls apart again. With
    `gradients` the sum of all float results, each weighted differently, is differentiated, and the gradients of the
    arguments are among the results.
    """
    import torch
    import torch._inductor.config as inductor_config
    from torch._inductor.utils import run_and_get_code

    import halide_backend

    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", os.environ.get("HALIDE_BACKEND_CACHE_DIR", str(kernel_store)))

    def compiled_call(
        function: Callable[..., Any], *arguments: Any, gradients: bool = False, backend: str = "halide_backend"
    ) -> Compiled:
        torch._dynamo.reset()
        halide_backend.reset_stats()
        with inductor_config.patch(cpu_backend=backend, force_disable_caches=True):
            fast = torch.compile(function, dynamic=False)
            results, codes = run_and_get_code(lambda: call(fast, arguments, gradients))
        stats = halide_backend.stats()
        if backend == "halide_backend":
            assert stats["delegation_reasons"] == {}
            assert stats["unfused_groups"] == 0
        code = "\n".join(codes)
        return Compiled(results, int(str(stats["native_kernels"])), launches(code), code)

    yield compiled_call
    torch._dynamo.reset()


@pytest.fixture
def check(compiled: Callable[..., Compiled]) -> Callable[..., Compiled]:
    """Like `compiled`, and compares with eager: torch.testing's tolerances, integers and bools exactly."""
    import torch

    def checked(function: Callable[..., Any], *arguments: Any, gradients: bool = False) -> Compiled:
        expected = call(function, arguments, gradients)
        outcome = compiled(function, *arguments, gradients=gradients)
        assert len(outcome.results) == len(expected)
        for got, wanted in zip(outcome.results, expected):
            torch.testing.assert_close(got, wanted, equal_nan=True, check_stride=False)
        return outcome

    return checked


def call(function: Callable[..., Any], arguments: tuple[Any, ...], gradients: bool) -> list[Any]:
    """Results, then the arguments afterwards, then the gradients of the float arguments."""
    import torch

    own = [copy_of(a) if isinstance(a, torch.Tensor) else a for a in arguments]
    leaves = [a for a in own if gradients and isinstance(a, torch.Tensor) and a.is_floating_point()]
    for leaf in leaves:
        leaf.requires_grad_()
    results = function(*own)
    results = list(results) if isinstance(results, (tuple, list)) else [results]
    if leaves:
        loss = sum((number + 1) * result.sum() for number, result in enumerate(results) if result.requires_grad)
        loss.backward()  # type: ignore[union-attr]
        return [r.detach() for r in results] + [leaf.grad for leaf in leaves]
    return results + [a for a in own if isinstance(a, torch.Tensor)]


def copy_of(tensor: Any) -> Any:
    """A copy with the same strides, in memory of its own."""
    import torch

    if 0 in tensor.stride() and tensor.numel():
        return tensor.clone(memory_format=torch.preserve_format)
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return copy.copy_(tensor.detach())


def launches(code: str) -> int:
    """Kernel calls in Inductor's wrapper."""
    calls = [line.strip() for line in code.splitlines() if line.startswith(" ")]
    return sum(line.startswith(("halide_", "cpp_fused_")) and "(" in line for line in calls)


@pytest.fixture
def scan_programs() -> Callable[..., list[Any]]:
    """scan_programs(function, *arguments): what is captured where scans are asked for; nothing of it is compiled."""
    return captured_scans


def captured_scans(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """The programs of `function`, on a CPU that claims to scan, with the alignment that CUDA memory has."""
    import torch
    import torch._inductor.config as inductor_config
    from torch._inductor.codegen.common import BackendFeature

    from halide_backend.build.artifacts import Build
    from halide_backend.build.target import Target
    from halide_backend.capture import fusion, scheduling
    from halide_backend.pipeline import Compilation
    from halide_backend.schedule.mapping.mapping import Mapping
    from halide_backend.schedule.plan import Plan

    found: list[Any] = []
    features = scheduling.HalideScheduling.get_backend_features

    def captured(program: Any, *rest: Any) -> Any:
        buffers = {
            kind: tuple(replace(buffer, aligned=True) for buffer in getattr(program, kind))
            for kind in ("inputs", "outputs")
        }
        found.append(replace(program, **buffers))
        built: Future[Any] = Future()
        built.set_result(None)
        return Compilation(Plan(Mapping(), ()), "", Target.host(), Build("", built))

    torch._dynamo.reset()
    with pytest.MonkeyPatch.context() as patch:
        claimed = (BackendFeature.SCAN, BackendFeature.TUPLE_REDUCTION)
        patch.setattr(scheduling, "compile_program", captured)
        patch.setattr(fusion, "scan_among", lambda nodes: "")
        patch.setattr(
            scheduling.HalideScheduling, "get_backend_features", lambda self, device: features(self, device) | claimed
        )
        settings = inductor_config.patch(cpu_backend="halide_backend", force_disable_caches=True)
        # What was captured is no text of a kernel.
        with settings, pytest.raises(Exception, match=r".*"):
            torch.compile(function, dynamic=False)(*arguments)
    return found
