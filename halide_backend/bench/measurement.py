"""One case: compiled by each backend, compared with eager in float32, timed in turns."""

from __future__ import annotations

import gc
import math
import statistics
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch import Tensor

import halide_backend
from halide_backend.bench.kernels import Case
from halide_backend.cache_key import NAME

#: Bytes that the calls of one CUDA graph touch together: several times the 60 MB second-level cache of an H200.
_FOOTPRINT, _MOST_CALLS = 400 << 20, 24

#: Ending of the name of a backend that tries several configurations of each kernel and keeps the fastest.
MAX_AUTOTUNE = "-max-autotune"

#: Samples of each backend; on a CPU each is the mean of as many calls as fill this time.
_ROUNDS, _SAMPLE_S = 9, 0.01

#: (relative, absolute) tolerance against eager in float32, the absolute one in units of the result's mean.
_TOLERANCE = {torch.float32: (2e-4, 2e-4), torch.bfloat16: (2e-2, 2e-2), torch.int8: (0, 1)}


@dataclass
class Result:
    """What is known of one case; `samples` are microseconds of one call by backend."""

    name: str
    right: bool = False
    native: int = 0
    delegated: dict[str, int] = field(default_factory=dict)
    compile_s: dict[str, float] = field(default_factory=dict)
    samples: dict[str, list[float]] = field(default_factory=dict)
    error: str = ""

    def median(self, backend: str) -> float:
        """Microseconds, NaN where nothing was measured."""
        return statistics.median(self.samples[backend]) if backend in self.samples else math.nan

    def ratio(self, against: str) -> float:
        """The other backend's time over ours: above 1 this one is faster."""
        return self.median(against) / self.median(NAME)


def evaluate(case: Case, against: str, *, timing: bool = True, against_first: bool = False) -> Result:
    """Check and time one case; whatever goes wrong is in the result.

    Whoever compiles first, this backend or `against_first`, pays for what torch computes once for a function.
    """
    result = Result(case.name)
    try:
        if timing and against_first:
            _warm(case, against, result, case.arguments())
        _check(case, result)
        if timing and result.right:
            _time(case, against, result)
    except Exception:
        result.right, result.error = False, traceback.format_exc()[-2000:]
    return result


def _compiled(case: Case, backend: str) -> Callable[..., Any]:
    if backend == "eager":
        return case.kernel.function
    torch._dynamo.reset()
    setattr(inductor_config, f"{case.make.device}_backend", backend.removesuffix(MAX_AUTOTUNE))
    inductor_config.max_autotune = backend.endswith(MAX_AUTOTUNE)
    inductor_config.force_disable_caches = True
    compiled: Callable[..., Any] = torch.compile(case.kernel.function, dynamic=False)
    return compiled


def _check(case: Case, result: Result) -> None:
    halide_backend.reset_stats()
    torch.manual_seed(0)
    arguments = case.arguments()
    begin = time.perf_counter()
    got = _tensors(_compiled(case, NAME)(*arguments))
    _wait(case)
    result.compile_s[NAME] = time.perf_counter() - begin
    stats = halide_backend.stats()
    result.native = int(stats["native_kernels"])  # type: ignore[call-overload]
    result.delegated = dict(stats["delegation_reasons"])  # type: ignore[call-overload]
    if case.kernel.compared:
        wide = [a.float() if a.is_floating_point() else a for a in arguments]
        wanted = _tensors(case.kernel.function(*wide))
        result.error = "\n".join(filter(None, (_difference(g, w) for g, w in zip(got, wanted, strict=True))))
    result.right = not result.error


def _difference(got: Tensor, wanted: Tensor) -> str:
    """Empty if the tensors are close."""
    if got.dtype not in _TOLERANCE:
        return "" if torch.equal(got, wanted.to(got.dtype)) else f"{got.dtype} results differ"
    relative, absolute = _TOLERANCE[got.dtype]
    scale = max(1.0, float(wanted.float().abs().nan_to_num(0, 0, 0).mean())) if got.is_floating_point() else 1.0
    try:
        torch.testing.assert_close(got.float(), wanted.float(), rtol=relative, atol=absolute * scale, equal_nan=True)
    except AssertionError as error:
        return str(error)
    return ""


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in _tensors(part)]


def _wait(case: Case) -> None:
    if case.make.device == "cuda":
        torch.cuda.synchronize()


def _time(case: Case, against: str, result: Result) -> None:
    prepare = _replays if case.make.device == "cuda" else _calls
    trials = {backend: prepare(case, backend, result) for backend in (against, NAME)}
    for _ in range(2):
        for sample in trials.values():
            sample()
    for _ in range(_ROUNDS):
        for backend, sample in trials.items():
            result.samples.setdefault(backend, []).append(round(sample(), 3))


def _warm(case: Case, backend: str, result: Result, arguments: tuple[Tensor, ...]) -> Callable[..., Any]:
    function = _compiled(case, backend)
    begin = time.perf_counter()
    function(*arguments)
    _wait(case)
    result.compile_s.setdefault(backend, time.perf_counter() - begin)
    function(*arguments)
    return function


def _calls(case: Case, backend: str, result: Result) -> Callable[[], float]:
    arguments = case.arguments()
    function = _warm(case, backend, result, arguments)
    begin = time.perf_counter()
    function(*arguments)
    count = max(1, int(_SAMPLE_S / (time.perf_counter() - begin)))

    def sample() -> float:
        begin = time.perf_counter()
        for _ in range(count):
            function(*arguments)
        return (time.perf_counter() - begin) * 1e6 / count

    return sample


def _replays(case: Case, backend: str, result: Result) -> Callable[[], float]:
    """Replays of a CUDA graph of several calls on different operands."""
    first = case.arguments()
    size = sum(tensor.numel() * tensor.element_size() for tensor in first) * 2
    count = max(2, min(_MOST_CALLS, _FOOTPRINT // max(size, 1)))
    operands = [first, *(case.arguments() for _ in range(count - 1))]
    stream, graph, kept = torch.cuda.Stream(), torch.cuda.CUDAGraph(), []
    gc.collect()
    with torch.cuda.stream(stream), torch.no_grad():
        function = _warm(case, backend, result, first)
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            kept = [function(*arguments) for arguments in operands]
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def sample() -> float:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / len(kept)

    return sample
