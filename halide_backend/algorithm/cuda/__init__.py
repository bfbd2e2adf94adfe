"""The algorithm half of a kernel on CUDA: axes cut for threads, memory seen as 32-bit words, sums across lanes."""

from __future__ import annotations
