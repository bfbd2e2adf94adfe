"""Samples of callables that take turns: A B A B ..., so that a slow moment of the machine hits both."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from halide_backend.launch.freed_memory import LARGE_BLOCK, in_huge_pages

#: Microseconds of one call, measured once.
Sampler = Callable[[], float]

#: Samples of each, after as many that do not count.
ROUNDS, WARM_UP = 9, 2

#: On a CPU a sample is the mean of as many calls as fill the first time, and each callable is sampled for the second.
#: Who else uses a cache or the memory changes within some milliseconds: nine samples of 10 ms found a kernel with an
#: operand of 4 MB 17 % slower than itself, a hundred of 1 ms 5 % at most (docs/how-to/benchmark-kernels.md).
_SAMPLE_S, SAMPLED_S = 0.001, 0.1

#: Calls whose quickest says how many make a sample: one alone may have been disturbed.
_TRIED = 3

#: Bytes that the calls of one CUDA graph touch together: several times the 60 MB second-level cache of an H200.
_FOOTPRINT, _MOST_CALLS = 400 << 20, 24


def alternate(
    samplers: Mapping[str, Sampler],
    rounds: int = ROUNDS,
    seconds: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Every sample by name, in microseconds: `rounds` of each, and more until each has been sampled for `seconds`.

    Every second round is in reverse order, since a callable finds in the caches what the one before it left there.
    """
    for _ in range(WARM_UP):
        for sample in samplers.values():
            sample()
    samples: dict[str, list[float]] = {name: [] for name in samplers}
    order, end = list(samplers.items()), clock() + seconds * len(samplers)
    while min(map(len, samples.values())) < rounds or clock() < end:
        for name, sample in order:
            samples[name].append(round(sample(), 3))
        order.reverse()
    return samples


def calls(
    function: Callable[..., Any], arguments: tuple[Any, ...], clock: Callable[[], float] = time.perf_counter
) -> Sampler:
    """Calls on a CPU, each sample after one that does not count; `clock` tells seconds.

    Another callable may leave nothing of this one in the caches: after eager's depthwise convolution the call after it
    took several times as long, and would be all there is to see as the only call of a sample.
    """
    function(*arguments)

    def timed(count: int) -> float:
        begin = clock()
        for _ in range(count):
            function(*arguments)
        return clock() - begin

    quickest = min(timed(1) for _ in range(_TRIED))
    count = max(1, int(_SAMPLE_S / max(quickest, 1e-7)))

    def sample() -> float:
        function(*arguments)
        return timed(count) * 1e6 / count

    return sample


def copies(first: tuple[Tensor, ...], more: Callable[[], tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """Operands of the calls of one CUDA graph: `first`, and what `more` makes, until they exceed the cache."""
    size = sum(tensor.numel() * tensor.element_size() for tensor in first) * 2
    count = max(2, min(_MOST_CALLS, _FOOTPRINT // max(size, 1)))
    return [first, *(more() for _ in range(count - 1))]


def replays(function: Callable[..., Any], operands: Sequence[tuple[Tensor, ...]]) -> Sampler:
    """Replays of a CUDA graph of a call on each of `operands`."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    gc.collect()
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(2):
            function(*operands[0])
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            kept = [function(*each) for each in operands]
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    # The graph reads and writes the memory of all of them for as long as it is replayed.
    alive = (operands, kept)

    def sample() -> float:
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e3 / len(alive[0])

    return sample


def allocations(results: Sequence[Tensor]) -> Sampler:
    """Memory for `results` on a CPU: asked for, and touched once a page where it is fresh from the system each time, in
    the pages that a graph of this backend asks for."""
    pages = 4096

    def allocated() -> None:
        for result in results:
            fresh = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype)
            storage = fresh.untyped_storage()
            if storage.nbytes() >= LARGE_BLOCK:
                in_huge_pages(fresh)
                torch.empty(0, dtype=torch.uint8).set_(storage)[::pages].fill_(0)

    return calls(allocated, ())
