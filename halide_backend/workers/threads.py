"""Threads that wait for others' work: a few, started when needed, in nobody's way."""

from __future__ import annotations

import heapq
import itertools
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

Result = TypeVar("Result")


class DaemonThreads:
    """Runs functions, as many at a time as there are threads.

    Of those that wait the largest is first, so that no thread is left with it when all others are done; equal ones run
    in the order they come.

    Unlike concurrent.futures.ThreadPoolExecutor, an interpreter that exits does not wait for what
    is still running, and a forked child starts with an empty queue and threads of its own.
    """

    def __init__(self, size: int, title: str) -> None:
        """Prepare at most `size` threads named after `title`; the first call starts the first."""
        self.size = size
        self._title = title
        self._reset()
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _reset(itself))

    def submit(self, function: Callable[[], Result], size: int = 0) -> Future[Result]:
        """Run `function` soon; the future has its result or its exception. The more it has to do, the larger `size`."""
        future: Future[Result] = Future()
        with self._lock:
            self._jobs.put(size, future, function)
            if len(self._threads) < self.size:
                name = f"{self._title} {len(self._threads) + 1}"
                thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def __del__(self) -> None:
        for _ in self._threads:
            self._jobs.announced.put(False)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._jobs = _Jobs()


@dataclass
class _Jobs:
    """What waits. `announced` has True for each, then False for each thread that is to end: unlike the heap it can be
    written wherever garbage is collected."""

    announced: queue.SimpleQueue[bool] = field(default_factory=queue.SimpleQueue)
    heap: list[tuple[int, int, Future[Any], Callable[[], Any]]] = field(default_factory=list)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def put(self, size: int, future: Future[Any], function: Callable[[], Any]) -> None:
        with self.lock:
            heapq.heappush(self.heap, (-size, next(self.numbers), future, function))
        self.announced.put(True)

    def take(self) -> tuple[Future[Any], Callable[[], Any]]:
        with self.lock:
            return heapq.heappop(self.heap)[2:]


def _work(jobs: _Jobs) -> None:
    while jobs.announced.get():
        future, function = jobs.take()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
        del future, function  # or their results would live until the next job


def _reset(threads: weakref.ref[DaemonThreads]) -> None:
    if (alive := threads()) is not None:
        alive._reset()
