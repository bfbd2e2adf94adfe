"""Candidates are compiled in the compile workers, ahead of their measurement, and leave nothing in the store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.pool import WorkerPool
from halide_backend.build.target import Target
from halide_backend.errors import HalideBackendError, WorkerCrashed, WorkerOutOfMemory, WorkerTimeout
from halide_backend.tune.measurement.contest import Contestant
from halide_backend.tune.measurement.measurer import Failed
from halide_backend.tune.trial import Outcome


def text_key(text: str) -> str:
    """Digest of a kernel's text: equal texts are one kernel."""
    return hashlib.sha256(text.encode()).hexdigest()


def failed(error: HalideBackendError, what: str) -> Failed:
    """How the compile worker that did `what` ended, where it raised `error`."""
    reason = error.what.splitlines()[0]
    for kind, outcome in _ENDS.items():
        if isinstance(error, kind):
            return Failed(outcome, f"{what}: {reason}")
    return Failed(Outcome.ILLEGAL, f"{type(error).__name__}: {reason}")


#: A worker that is out of memory has crashed, too.
_ENDS: dict[type[HalideBackendError], Outcome] = {
    WorkerTimeout: Outcome.TIMEOUT,
    WorkerOutOfMemory: Outcome.MEMORY,
    WorkerCrashed: Outcome.CRASHED,
}


@dataclass(frozen=True)
class Candidate:
    """A kernel that is being compiled."""

    key: str
    built: Future[CompiledKernel]

    def wait(self) -> tuple[Contestant, float] | Failed:
        """The compiled kernel and the seconds that it took, or why there is none."""
        try:
            kernel = self.built.result()
        except HalideBackendError as error:
            return failed(error, "compiling")
        made = Contestant(self.key, kernel.object, kernel.manifest, _entry(self.key), kernel.image)
        return made, kernel.seconds


class Compilation:
    """Compiles kernels for `target`, several at a time.

    Attributes:
        target: what for. at_once: how many.
    """

    def __init__(
        self, target: Target, *, workers: int = 0, time_limit: float = 60.0, memory_limit_mb: int = 4096
    ) -> None:
        """Prepare; `workers` is 0 for one for each core that this process may use.

        The workers run on the cores that this process has when the first kernel is compiled.
        """
        self.target = target
        self.at_once = workers or len(os.sched_getaffinity(0))
        self._pool = WorkerPool(self.at_once, time_limit=time_limit, memory_limit=memory_limit_mb << 20)
        #: What was begun before it is needed, by key.
        self._ahead: dict[str, Candidate] = {}

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.close()

    def begin(self, text: str, name: str, limit: float | None = None) -> Candidate:
        """Begin to compile a kernel's text, for `limit` seconds at most, or as long as any."""
        key = text_key(text)
        if (begun := self._ahead.pop(key, None)) is not None:
            return begun
        built = self._pool.threads.submit(lambda: self._pool.compile(text, self.target, _entry(key), name, limit))
        return Candidate(key, built)

    def ahead(self, text: str, name: str) -> Candidate:
        """Begin to compile a kernel's text, for which `begin` will ask."""
        candidate = self._ahead[text_key(text)] = self.begin(text, name)
        return candidate

    def autoschedule(
        self, scheduler: str, text: str, estimates: Mapping[str, Sequence[int]], threads: int, name: str, limit: float
    ) -> Future[str]:
        """Let an autoscheduler of Halide's look at a kernel's text for `limit` seconds at most; see
        `WorkerPool.autoschedule`."""
        arguments = text, self.target, scheduler, estimates, threads, name, limit
        return self._pool.threads.submit(lambda: self._pool.autoschedule(*arguments))


def _entry(key: str) -> str:
    return f"candidate_{key[:16]}"
