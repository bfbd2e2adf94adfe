"""What the memory of a GPU can do at most: bytes that an elementwise kernel of torch's reads and writes in a second."""

from __future__ import annotations

import statistics
from functools import cached_property
from typing import Any

import torch

from halide_backend.bench.timing import ROUNDS, WARM_UP, replays

#: Bytes of each of the tensors that are copied: two are more than any cache holds.
_BYTES = 1 << 28

#: The share of the bandwidth below which a kernel is told of: most take a sixth of it or more even where they
#: compute much, and what does not use the whole GPU takes a hundredth.
SLOW = 0.1


class CopyBandwidth:
    """The bound of kernels on the current GPU that no cache helps; measured when asked for, once."""

    def seconds(self, bytes_moved: int, operations: int) -> float:
        """The least time of a kernel that moves so many bytes; of operations the bound is not known."""
        return bytes_moved / self.rate

    @cached_property
    def rate(self) -> float:
        """Bytes a second, read and written: the median of replays of `x + 1`."""
        operands = [(torch.zeros(_BYTES // 4, device="cuda"),) for _ in range(2)]
        sample = replays(lambda x: x + 1, operands)
        samples = [sample() for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
        return 2 * _BYTES / (statistics.median(samples) / 1e6)

    def to_json(self) -> dict[str, Any]:
        """What was measured, in GB/s."""
        return {"copy_gb_s": round(self.rate / 1e9, 1)}
