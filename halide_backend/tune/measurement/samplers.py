"""Samples of one kernel's time: from caches that hold its operands, or from memory."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from halide_backend.bench import timing
from halide_backend.tune.measurement.operands import Operands

#: Bytes that are written to empty the caches: twice the last one, where the system tells its size.
_LEAST_FLUSHED, _MOST_FLUSHED = 64 << 20, 512 << 20

#: Seconds of one part of a sample, parts of a sample, and seconds after which no other part begins.
_PART_S, _PARTS, _LONGEST_S = 0.0005, 5, 0.01

#: Operands of a GPU kernel that stay in its caches: launches of one CUDA graph.
_LAUNCHES = 8


class Flush:
    """Empties the caches of the processor's cores that the kernel's threads run on."""

    def __init__(self) -> None:
        try:
            known = os.sysconf("SC_LEVEL3_CACHE_SIZE")
        except (ValueError, OSError):
            known = 0
        size = min(max(2 * known, _LEAST_FLUSHED), _MOST_FLUSHED)
        self._buffer = torch.zeros(size // 4, dtype=torch.float32)

    def __call__(self) -> None:
        """Write more than the caches hold, with as many threads as kernels have."""
        self._buffer.add_(1)


def on_cpu(
    kernel: Callable[..., Any], arguments: Sequence[Any], operands: Operands, flush: Flush | None
) -> timing.Sampler:
    """Microseconds of a call: with `flush` of one call after it, otherwise of as many as fill 2.5 ms: the median of
    some parts of that time, because one wait of a thread for its core may be longer than all calls."""
    given = tuple(arguments)
    if flush is not None:

        def cold() -> float:
            operands.restore(updated_only=True)
            flush()
            begin = time.perf_counter()
            kernel(*given)
            return (time.perf_counter() - begin) * 1e6

        return cold
    kernel(*given)
    begin = time.perf_counter()
    kernel(*given)
    count = max(1, int(_PART_S / max(time.perf_counter() - begin, 1e-7)))

    def warm() -> float:
        operands.restore(updated_only=True)
        seconds = []
        for _ in range(_PARTS):
            begin = time.perf_counter()
            for _ in range(count):
                kernel(*given)
            seconds.append(time.perf_counter() - begin)
            if sum(seconds) > _LONGEST_S:
                break
        return statistics.median(seconds) * 1e6 / count

    return warm


def on_gpu(kernel: Callable[..., Any], arguments: Sequence[Any], operands: Operands, *, cold: bool) -> timing.Sampler:
    """Microseconds of a launch in a CUDA graph of some, each on memory of its own where they are to be `cold`."""
    tensors = tuple(operands.memory.values())
    places = {tensor.data_ptr(): position for position, tensor in enumerate(tensors)}
    roles = [places[a.data_ptr()] if isinstance(a, torch.Tensor) else None for a in arguments]

    def launch(*memory: torch.Tensor) -> None:
        given = [a if role is None else memory[role] for a, role in zip(arguments, roles)]
        kernel(*given, torch.cuda.current_stream().cuda_stream)

    if cold:
        return timing.replays(launch, timing.copies(tensors, lambda: tuple(t.clone() for t in tensors)))
    return timing.replays(launch, [tensors] * _LAUNCHES)
