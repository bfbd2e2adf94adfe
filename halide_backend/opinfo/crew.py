"""Workers that share a list of cases; what fails is run with Inductor's backend, too."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from halide_backend.errors import WorkerCrashed, WorkerTimeout
from halide_backend.opinfo import outcome
from halide_backend.opinfo.case import Case, Request
from halide_backend.opinfo.outcome import Failure, Outcome, same_failures
from halide_backend.workers.pool import Worker, Workers
from halide_backend.workers.server import Program
from halide_backend.workers.task import Limits, Task

#: Seconds for the server to start: it imports torch and its database.
START_LIMIT = 600.0

#: Cases after which a worker is replaced: torch keeps some memory of everything that it compiles.
LIFETIME = 150

#: What the server runs; the device is added.
COMMAND = (sys.executable, "-m", "halide_backend.opinfo.worker")


def outcomes(
    request: Request,
    cases: Sequence[Case],
    folder: str,
    command: Sequence[str] = COMMAND,
    begun: Callable[[Case], None] = lambda case: None,
) -> Generator[Outcome, None, None]:
    """The outcomes of cases, as they come, with the device, number of jobs and limits of `request`.

    Args:
        folder: for temporary files.
        begun: called from several threads.

    Raises:
        WorkerNotStarted: there is no worker.
    """
    # A server that imports the database may look at the GPUs, and none of its forks could use CUDA then: for "cuda" it
    # imports nothing, and for "cpu" it sees no GPU.
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if request.device == "cpu" else {}
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"), **hidden}
    workers = Workers(Program("opinfo worker", lambda: (*command, request.device), lambda: environment, START_LIMIT))
    limits = Limits(request.time_limit)

    def check(worker: Worker, case: Case) -> Outcome:
        begun(case)
        found = _checked(worker, case, limits)
        if request.against and found.status in outcome.BAD:
            return _compared(worker, found, replace(case, backend=request.against), limits)
        return found

    try:
        yield from workers.stream(cases, check, jobs=request.jobs, lifetime=LIFETIME)
    finally:
        workers.close()


def _checked(worker: Worker, case: Case, limits: Limits) -> Outcome:
    started = time.monotonic()
    samples = [-1]
    try:
        found: Outcome
        found, _ = worker.run(Task(str(case), case, limits), samples.append)
        return found
    except (WorkerCrashed, WorkerTimeout) as error:
        status = outcome.TIMEOUT if isinstance(error, WorkerTimeout) else outcome.CRASHED
        failure = Failure(samples[-1], status, error.what)
    seconds = round(time.monotonic() - started, 3)
    return Outcome(case.op, case.dtype, status, failures=(failure,), seconds=seconds)


def _compared(worker: Worker, ours: Outcome, other: Case, limits: Limits) -> Outcome:
    """`ours`, with what the other backend does on the samples that failed."""
    # A failure of the sample inputs themselves is nobody's.
    samples = tuple(sorted({f.sample for f in ours.failures if f.sample >= 0}))
    if not samples:
        return ours
    failures = _checked(worker, replace(other, samples=samples), limits).failures
    status = outcome.SAME_FAILURE if same_failures(ours.failures, failures) else ours.status
    return replace(ours, status=status, other_failures=failures)
