"""Several workers that share a list of cases; what fails is run with Inductor's backend, too."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from halide_backend.opinfo import outcome
from halide_backend.opinfo.case import Case
from halide_backend.opinfo.outcome import Failure, Outcome, same_failures
from halide_backend.opinfo.process import COMMAND, Worker


class Crew:
    """`jobs` workers, each in a thread; `folder` is theirs for temporary files."""

    def __init__(
        self,
        jobs: int,
        folder: str,
        time_limit: float,
        against: str,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._workers = [Worker(folder, command) for _ in range(jobs)]
        self._time_limit = time_limit
        self._against = against
        self._stop = threading.Event()
        self.doing: dict[int, str] = {}

    def outcomes(self, cases: Sequence[Case], tick: Callable[[], None]) -> Iterator[Outcome]:
        """The outcomes as they come; `tick` is called twice a second while none comes.

        Raises:
            HalideBackendError: a worker cannot be started.
        """
        waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
        for case in cases:
            waiting.put(case)
        done: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()
        threads = [
            threading.Thread(target=self._work, args=(number, waiting, done), daemon=True)
            for number in range(len(self._workers))
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in cases:
                yield self._next(done, tick)
        finally:
            self._stop.set()
            for worker in self._workers:
                worker.close()
            for thread in threads:
                thread.join(timeout=10)

    def _next(self, done: queue.SimpleQueue[Outcome | BaseException], tick: Callable[[], None]) -> Outcome:
        while True:
            tick()
            try:
                found = done.get(timeout=0.5)
            except queue.Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    def _work(
        self,
        number: int,
        waiting: queue.SimpleQueue[Case],
        done: queue.SimpleQueue[Outcome | BaseException],
    ) -> None:
        worker = self._workers[number]
        while not self._stop.is_set():
            try:
                case = waiting.get_nowait()
            except queue.Empty:
                return
            self.doing[number] = str(case)
            try:
                found = worker.check(case, self._time_limit)
                if self._against and found.status in outcome.BAD:
                    found = self._compared(worker, case, found)
                done.put(found)
            except BaseException as error:
                done.put(error)
                return

    def _compared(self, worker: Worker, case: Case, ours: Outcome) -> Outcome:
        """`ours`, with what the other backend does on the samples that failed."""
        # A failure of the sample inputs themselves is nobody's.
        samples = tuple(sorted({f.sample for f in ours.failures if f.sample >= 0}))
        if not samples:
            return ours
        other = worker.check(replace(case, backend=self._against, samples=samples), self._time_limit)
        failures: tuple[Failure, ...] = other.failures
        status = outcome.SAME_FAILURE if same_failures(ours.failures, failures) else ours.status
        return replace(ours, status=status, other_failures=failures)
