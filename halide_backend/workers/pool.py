"""Servers and workers as long as they are needed: started when first asked for, replaced when they die."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from halide_backend.workers.server import Fork, Program, Server, ServerGone
from halide_backend.workers.task import Task
from halide_backend.workers.threads import DaemonThreads

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """Workers of one kind, forks of one server.

    Safe to use from several threads. A forked child gets a server of its own when it needs one. Nothing is started
    before the first task; the server ends with this process, however that ends.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.closed = False
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._spare: Fork | None = None
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _if_alive(itself, Workers._forget))
        atexit.register(_if_alive, itself, Workers.close)

    def start(self) -> None:
        """Start the server now and have it fork a worker, so that the first task need wait for neither.

        What was closed stays so: the thread that calls this may be late.

        Raises:
            WorkerNotStarted: it does not start.
        """
        server = self._current()
        with self._lock:
            if server is not None and server is self._server and self._spare is None:
                self._spare = server.fork()

    def fork(self, task: Task) -> Fork:
        """A new worker of the server, for `task` and others.

        Raises:
            WorkerNotStarted: there is no server. WorkerCrashed: all was closed.
        """
        server = self._current()
        if server is None:
            raise self.program.crashed(task, f"the {self.program.title}s of this process are closed")
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is None or spare.server is server:
            return spare or server.fork()
        spare.close()  # It died with its server.
        return server.fork()

    def stream(
        self, items: Iterable[Item], function: Callable[[Worker, Item], Result], *, jobs: int, lifetime: int
    ) -> Iterator[Result]:
        """Yield the results of `function(worker, item)`, `jobs` at a time, as they come.

        An item is taken when a worker is free for it. When the consumer stops or is interrupted, and when `function`
        raises (it is raised here), all workers are killed.

        Args:
            function: runs tasks in the worker, from a thread of its own.
            lifetime: tasks after which a worker is replaced.
        """
        waiting, lock = iter(items), threading.Lock()
        results: queue.SimpleQueue[tuple[Result, ...] | BaseException] = queue.SimpleQueue()
        crew = [Worker(self, lifetime) for _ in range(jobs)]

        def work(worker: Worker) -> None:
            try:
                while not worker.killed:
                    with lock:
                        taken = tuple(islice(waiting, 1))
                    results.put(tuple(function(worker, item) for item in taken))
                    if not taken:
                        break
            except BaseException as error:
                results.put(error)
            finally:
                worker.close()

        threads = DaemonThreads(jobs, self.program.title)
        running = [threads.submit(partial(work, worker)) for worker in crew]
        try:
            while jobs:
                result = results.get()
                if isinstance(result, BaseException):
                    raise result
                jobs -= not result
                yield from result
        finally:
            for worker in crew:
                worker.kill()
            wait(running, timeout=10)

    def close(self) -> None:
        """End the server and its workers. What still is to be done fails with WorkerCrashed."""
        self.closed = True
        with self._lock:
            server, self._server = self._server, None
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.close()
        if server is not None:
            server.kill()

    def _current(self) -> Server | None:
        with self._lock:
            if not self.closed and (self._server is None or self._server.killed):
                self._server = Server(self.program)
            return self._server

    def _forget(self) -> None:
        """In a forked child: the server is the parent's, and so is whoever held the lock."""
        server, self._server = self._server, None
        spare, self._spare = self._spare, None
        self._lock = threading.Lock()
        if spare is not None:
            spare.disown()
        if server is not None:
            server.disown()


class Worker:
    """A worker that is replaced when it dies, or has run `lifetime` tasks. For one thread, but for `kill`."""

    def __init__(self, workers: Workers, lifetime: int = 1) -> None:
        self.killed = False
        self._workers = workers
        self._lifetime = lifetime
        self._fork: Fork | None = None
        self._age = 0

    def run(self, task: Task, on_report: Callable[[Any], None] = lambda report: None) -> tuple[Any, str]:
        """Run a task; return its answer and the end of what it printed. Any exception ends the worker.

        Args:
            on_report: called with each report of the task.

        Raises:
            HalideBackendError: as the task.
            WorkerTimeout: its time is over; the message ends with where it was, in Python.
            WorkerCrashed: its process was killed, aborted, ended, needed more memory than allowed, or was cancelled.
            WorkerNotStarted: there is no server.
        """
        try:
            return self._attempt(task, on_report)
        except ServerGone:
            # The server runs no task itself, so its death says nothing about this one: once more, and not silently.
            if not self._workers.closed:
                title = self._workers.program.title
                warnings.warn(f"the halide_backend {title} died; another one was started", RuntimeWarning, stacklevel=3)
        try:
            return self._attempt(task, on_report)
        except ServerGone as error:
            raise self._workers.program.crashed(task, str(error)) from None

    def kill(self) -> None:
        """Cancel its task, from any thread; it takes no other."""
        self.killed = True
        if (fork := self._fork) is not None:
            fork.kill()

    def close(self) -> None:
        """End its process."""
        fork, self._fork = self._fork, None
        if fork is not None:
            fork.close()

    def _attempt(self, task: Task, on_report: Callable[[Any], None]) -> tuple[Any, str]:
        if self._fork is None:
            self._fork, self._age = self._workers.fork(task), 0
        if self.killed:
            self._fork.kill()
        try:
            answer = self._fork.run(task, on_report)
            self._age += 1
        except BaseException:
            self._age = self._lifetime
            raise
        finally:
            if self._age >= self._lifetime:
                self.close()
        return answer


def _if_alive(workers: weakref.ref[Workers], method: Callable[[Workers], None]) -> None:
    if (alive := workers()) is not None:
        method(alive)
