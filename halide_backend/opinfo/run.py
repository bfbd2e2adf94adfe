"""The command `halide-backend opinfo`: which cases, who runs them, what is shown and kept."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TextIO

from halide_backend.opinfo import table
from halide_backend.opinfo.case import Case, Request
from halide_backend.opinfo.crew import Crew
from halide_backend.opinfo.outcome import BAD, Outcome
from halide_backend.opinfo.process import COMMAND
from halide_backend.opinfo.results import Results


def show_cases(request: Request) -> int:
    """Print operator and data type of every case of `request`."""
    for case in _cases(request):
        print(case)
    return 0


def run(request: Request, command: Sequence[str] = COMMAND) -> int:
    """Run `request`; returns 1 if something failed, crashed or hung that does not with the other backend, too.

    Raises:
        HalideBackendError: an operator that does not exist, results that cannot be resumed, a worker
            that does not start.
    """
    if request.checkout:
        return _run_checkout(request)
    results = Results(request)
    everything = _cases(request)
    cases = [case for case in everything if (case.op, case.dtype) not in results.outcomes]
    progress = Progress(len(everything), len(everything) - len(cases), sys.stderr)
    with tempfile.TemporaryDirectory(prefix="halide-backend-opinfo-") as folder:
        crew = Crew(request.jobs, folder, request.time_limit, request.against, command)
        try:
            for outcome in crew.outcomes(cases, lambda: progress.tick(list(crew.doing.values()))):
                results.add(outcome)
                progress.done(outcome)
        finally:
            results.write()
    return _report([results.outcomes[case.op, case.dtype] for case in everything])


def _report(outcomes: Sequence[Outcome]) -> int:
    print(table.write(outcomes))
    return 1 if any(outcome.status in BAD for outcome in outcomes) else 0


def _run_checkout(request: Request) -> int:
    """Run the test file of a PyTorch checkout."""
    from halide_backend.opinfo import database, torch_test

    path = torch_test.test_file(request.checkout)
    results = Results(replace(request, resume=False))
    ranges = database.ranges(request.ops, torch_test.RANGE)
    progress = Progress(len(ranges), 0, sys.stderr)
    with ThreadPoolExecutor(request.jobs) as pool:
        waiting = {pool.submit(torch_test.outcomes_of, path, *r, request) for r in ranges}
        while waiting:
            progress.tick([f"operators in {len(waiting)} ranges"])
            finished, waiting = wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in finished:
                progress.done(*future.result())
                for outcome in future.result():
                    results.add(outcome)
    results.write()
    return _report(list(results.outcomes.values()))


def _cases(request: Request) -> list[Case]:
    # Imports torch and its whole database.
    from halide_backend.opinfo import database

    return database.cases(request)


class Progress:
    """A line that says how far the run is, and a line for everything that is bad."""

    def __init__(self, total: int, finished: int, stream: TextIO) -> None:
        self._total = total
        self._finished = self._before = finished
        self._bad = 0
        self._stream = stream
        self._terminal = stream.isatty()
        self._started = time.monotonic()
        self._shown = 0.0

    def tick(self, doing: Iterable[str]) -> None:
        """Show how far the run is; in a log file once a minute."""
        now = time.monotonic()
        if now - self._shown < (0.4 if self._terminal else 60.0):
            return
        self._shown = now
        left = self._left(now)
        line = f"[{self._finished}/{self._total}] {self._bad} bad, {left}: {', '.join(doing)}"
        self._stream.write(f"\r\x1b[K{line[:150]}" if self._terminal else f"{line}\n")
        self._stream.flush()

    def done(self, *outcomes: Outcome) -> None:
        """Count one piece of work; name what is bad in it."""
        self._finished += 1
        start = "\r\x1b[K" if self._terminal else ""
        for outcome in outcomes:
            if outcome.status in BAD:
                self._bad += 1
                self._stream.write(f"{start}{_line(outcome)}\n")
        self._stream.flush()

    def _left(self, now: float) -> str:
        finished = self._finished - self._before
        if not finished:
            return "starting"
        seconds = (now - self._started) / finished * (self._total - self._finished)
        return f"about {seconds / 60:.0f} min left"


def _line(outcome: Outcome) -> str:
    failure = outcome.failures[0]
    first = " | ".join(failure.error.splitlines()[:2])
    return f"{outcome.op} {outcome.dtype}: {outcome.status}: {failure.kind}: {first[:300]}"
