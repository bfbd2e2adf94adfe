"""What a worker is asked to do, and what it may use for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What one task may use.

    Attributes:
        seconds: wall-clock time, counted anew from each report of the task.
        memory: bytes of private writable memory that its process may hold, and of any file it writes; 0 for no limit.
        cores: numbers of the logical cores it runs on; all that the server may use where empty.
    """

    seconds: float
    memory: int = 0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Task:
    """`content` (picklable) for the `work` of a server; `name` is what errors call it, "kernel softmax_0" say."""

    name: str
    content: Any
    limits: Limits
