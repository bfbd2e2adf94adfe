"""The command `halide-backend opinfo`: which cases, who runs them, what is shown and kept."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from dataclasses import replace

from halide_backend.opinfo import crew, table
from halide_backend.opinfo.case import Case, Request
from halide_backend.opinfo.outcome import BAD, Outcome
from halide_backend.opinfo.results import Results
from halide_backend.terminal import Progress


def show_cases(request: Request) -> int:
    """Print operator and data type of every case of `request`."""
    for case in _cases(request):
        print(case)
    return 0


def run(request: Request, command: Sequence[str] = crew.COMMAND) -> int:
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
    done = len(everything) - len(cases)
    with (
        tempfile.TemporaryDirectory(prefix="halide-backend-opinfo-") as folder,
        Progress(len(everything), sys.stderr, finished=done) as progress,
        closing(crew.outcomes(request, cases, folder, command, lambda case: progress.doing(str(case)))) as found,
    ):
        try:
            for outcome in found:
                results.add(outcome)
                _show(progress, outcome)
        finally:
            results.write()
    return _report([results.outcomes[case.op, case.dtype] for case in everything])


def _report(found: Sequence[Outcome]) -> int:
    print(table.write(found))
    return 1 if any(outcome.status in BAD for outcome in found) else 0


def _run_checkout(request: Request) -> int:
    """Run the test file of a PyTorch checkout."""
    from halide_backend.opinfo import database, torch_test

    path = torch_test.test_file(request.checkout)
    results = Results(replace(request, resume=False))
    ranges = database.ranges(request.ops, torch_test.RANGE)
    with ThreadPoolExecutor(request.jobs) as pool, Progress(len(ranges), sys.stderr) as progress:
        waiting = [pool.submit(torch_test.outcomes_of, path, *r, request) for r in ranges]
        for future in as_completed(waiting):
            _show(progress, *future.result())
            for outcome in future.result():
                results.add(outcome)
    results.write()
    return _report(list(results.outcomes.values()))


def _cases(request: Request) -> list[Case]:
    # Imports torch and its whole database.
    from halide_backend.opinfo import database

    return database.cases(request)


def _show(progress: Progress, *found: Outcome) -> None:
    """Count one piece of work; name what is bad in it."""
    progress.done("\n".join(_line(outcome) for outcome in found if outcome.status in BAD))


def _line(outcome: Outcome) -> str:
    failure = outcome.failures[0]
    first = " | ".join(failure.error.splitlines()[:2])
    return f"{outcome.op} {outcome.dtype}: {outcome.status}: {failure.kind}: {first[:300]}"
