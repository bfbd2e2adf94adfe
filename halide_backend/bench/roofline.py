"""What this machine can do at most: bytes copied, and multiplications with additions, by loops of its own instructions.

The loops are run by as many threads as kernels are, and each measurement is the best of several. A kernel cannot take
less time than its bytes at the bandwidth of its footprint, nor than its operations at the peak.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from halide_backend.bench.loops import UNROLLED, Loops, copy_text, fma_text, lanes_of
from halide_backend.build.target import Target

#: Seconds of one measurement, and measurements of which the best counts.
_MEASURED_S, _TRIALS = 0.004, 9
#: Bytes of the footprints between which bandwidth is measured: half of a first-level cache, and beyond all caches.
_SMALLEST, _LARGEST = 1 << 14, 1 << 29


@dataclass
class Roofline:
    """The bounds of this machine for kernels on `threads` threads; measured when asked for, once each.

    Attributes:
        target: whose instructions the loops use.
        threads: number of threads.
        bandwidths: footprint in bytes -> bytes a second read and written by a copy.
    """

    target: Target
    threads: int
    bandwidths: dict[int, float] = field(default_factory=dict)

    def seconds(self, bytes_moved: int, operations: int) -> float:
        """The least time of a kernel that moves so many bytes and does so many operations."""
        return max(bytes_moved / self.bandwidth(bytes_moved), operations / self.peak)

    @cached_property
    def peak(self) -> float:
        """float32 operations a second."""
        lanes = lanes_of(self.target)
        loops = Loops(fma_text(lanes), self.target)
        results = [np.zeros(64, np.float32) for _ in range(self.threads)]
        pointers = [_aligned(result) for result in results]
        iterations = 1000
        rate = self._rate(lambda t, n: loops.run(pointers[t], pointers[t], iterations, n))
        return rate * iterations * UNROLLED * lanes * 2 * self.threads

    def bandwidth(self, footprint: int) -> float:
        """Bytes a second of a copy whose source and destination are of `footprint` bytes, to the next power of two."""
        rounded = 1 << round(math.log2(min(max(footprint, _SMALLEST), _LARGEST)))
        if rounded not in self.bandwidths:
            self.bandwidths[rounded] = self._measured_bandwidth(rounded)
        return self.bandwidths[rounded]

    def to_json(self) -> dict[str, Any]:
        """What was measured, in GB/s and GFLOP/s."""
        return {
            "threads": self.threads,
            "copy_gb_s": {str(size): round(rate / 1e9, 2) for size, rate in sorted(self.bandwidths.items())},
            "fma_gflop_s": round(self.peak / 1e9, 1),
        }

    def _measured_bandwidth(self, footprint: int) -> float:
        lanes = lanes_of(self.target)
        step = 4 * lanes * UNROLLED
        count = max(1, footprint // 2 // self.threads // step)
        # Written once: memory that never was is one page of zeros to all readers.
        buffers = [[np.ones(count * step // 4 + 16, np.float32) for _ in range(2)] for _ in range(self.threads)]
        pointers = [tuple(_aligned(buffer) for buffer in pair) for pair in buffers]
        found = []
        for streaming in (False, True):
            loops = Loops(copy_text(lanes, streaming), self.target)
            found.append(self._rate(lambda t, n, loops=loops: loops.run(*pointers[t], count, n)))  # type: ignore[misc]
        return max(found) * 2 * count * step * self.threads

    def _rate(self, run: Callable[[int, int], None]) -> float:
        """Repetitions a second of `run`(thread, repetitions) on all threads at once: the best measurement."""
        repetitions = 1
        while (seconds := self._together(run, repetitions)) < _MEASURED_S:
            repetitions *= max(2, min(16, int(_MEASURED_S / max(seconds, 1e-7)) + 1))
        return repetitions / min(self._together(run, repetitions) for _ in range(_TRIALS))

    def _together(self, run: Callable[[int, int], None], repetitions: int) -> float:
        barrier = threading.Barrier(self.threads)

        def timed(thread: int) -> tuple[float, float]:
            barrier.wait()
            begin = time.perf_counter()
            run(thread, repetitions)
            return begin, time.perf_counter()

        with ThreadPoolExecutor(self.threads) as pool:
            times = list(pool.map(timed, range(self.threads)))
        return max(end for _, end in times) - min(begin for begin, _ in times)


def _aligned(buffer: Any) -> int:
    """The first address in `buffer` that a vector is aligned to."""
    address: int = buffer.ctypes.data
    return -(-address // 64) * 64
