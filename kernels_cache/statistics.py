"""Counts of what a store did, safe to take from any thread and after a fork."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Statistics:
    """Counts since the store was opened in this process.

    Attributes:
        hits: look-ups that returned an entry.
        misses: look-ups that did not, for whatever reason.
        stored: entries published.
        built: calls of a builder that returned.
        refused: entries found that require another machine (also counted as misses).
        quarantined: damaged entries set aside.
        evicted: entries removed to stay within the bound.
        troubles: cache troubles, warned about or not.
        warnings: warnings given (at most one a process).
    """

    hits: int = 0
    misses: int = 0
    stored: int = 0
    built: int = 0
    refused: int = 0
    quarantined: int = 0
    evicted: int = 0
    troubles: int = 0
    warnings: int = 0


class Counter:
    """The one mutable `Statistics` of a store."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = Statistics()
        _ALIVE.add(self)

    def add(self, name: str, amount: int = 1) -> None:
        """Add to one count."""
        with self._lock:
            now = self._counts
            self._counts = replace(now, **{name: getattr(now, name) + amount})

    def snapshot(self) -> Statistics:
        """Return the counts as they are now."""
        return self._counts

    def _unlock(self) -> None:
        self._lock = threading.Lock()


_ALIVE: weakref.WeakSet[Counter] = weakref.WeakSet()


def _after_fork() -> None:
    # Another thread may have held the lock at the fork; in the child nobody would release it.
    for counter in list(_ALIVE):
        counter._unlock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
