"""The numbers of threads that a schedule of a CPU kernel is for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ThreadRange:
    """From `least` to `most` threads, both included."""

    least: int
    most: int

    def __contains__(self, threads: int) -> bool:
        """Whether it is one of them."""
        return self.least <= threads <= self.most


def thread_class(threads: int) -> ThreadRange:
    """The class of `threads`, 1 or more: from one power of two to the next.

    One thread is a class of its own, since without sharing loops a kernel is faster there; with 12 threads what was
    best with 8 is a good guess.
    """
    least = 1 << (threads.bit_length() - 1)
    return ThreadRange(least, 2 * least - 1)
