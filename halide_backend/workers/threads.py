"""Threads that wait for others' work: a few, started when needed, in nobody's way."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")


class DaemonThreads:
    """Runs functions in the order they come, as many at a time as there are threads.

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

    def submit(self, function: Callable[[], Result]) -> Future[Result]:
        """Run `function` soon; the future has its result or its exception."""
        future: Future[Result] = Future()
        with self._lock:
            self._jobs.put((future, function))
            if len(self._threads) < self.size:
                name = f"{self._title} {len(self._threads) + 1}"
                thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def __del__(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._jobs: _Jobs = queue.SimpleQueue()


_Jobs = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]


def _work(jobs: _Jobs) -> None:
    while (job := jobs.get()) is not None:
        future, function = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
        del job, future, function  # or their results would live until the next job


def _reset(threads: weakref.ref[DaemonThreads]) -> None:
    if (alive := threads()) is not None:
        alive._reset()
