"""How much one thread of a CUDA kernel does whose threads work alone."""

from __future__ import annotations

#: Threads of a block whose threads do not cooperate (measured: gelu of 2**24 bfloat16 21.9 us with 128, 23.0 with 256).
BLOCK = 128

#: Bytes that a thread stores at least, in up to so many steps: an H200 starts 1,600 blocks in a microsecond, whatever
#: they do (measured: 65,472 blocks that store 4 bytes a thread 41.6 us, 117,247 that store 16 bytes 72.4 us).
THREAD_BYTES, MOST_PARTS = 32, 8

#: Blocks that fill an H200, 16 for each of 132 multiprocessors: with fewer, threads had better not take several steps.
ENOUGH_BLOCKS = 2112


def parts_of_a_thread(steps: int, stored: int) -> int:
    """Of so many `steps`, each of which stores `stored` bytes, how many one thread does."""
    parts = min(max(1, THREAD_BYTES // stored), MOST_PARTS)
    while parts > 1 and steps < parts * BLOCK * ENOUGH_BLOCKS:
        parts //= 2
    return parts
