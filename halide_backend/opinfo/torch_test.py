"""Runs torch's own test/inductor/test_torchinductor_opinfo.py, unmodified, with this backend.

The checkout must be of the very torch version that is installed. The file reads the range of
operators it takes from its environment, so the database is cut into ranges, each in a process of
its own: one that crashes or hangs takes only the rest of its range with it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from halide_backend.errors import HalideBackendError
from halide_backend.opinfo import outcome
from halide_backend.opinfo.case import Request
from halide_backend.opinfo.outcome import Failure, Outcome

#: Where the test is in a checkout.
TEST = Path("test/inductor/test_torchinductor_opinfo.py")

#: Operators in one process.
RANGE = 10

#: Selects the backend, then is the test: no file of the checkout and none of torch is touched.
_START = """\
import runpy, sys, torch._inductor.config
import halide_backend
torch._inductor.config.cpu_backend = "halide_backend"
sys.argv = sys.argv[1:]
sys.path.insert(0, ".")
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    import json
    print("\\nhalide_backend.stats:", json.dumps(halide_backend.stats()), flush=True)
"""

#: Where the verbose output of unittest begins with a test. Warnings and whatever the test prints may
#: come between that and the verdict.
_BEGIN = re.compile(r"^test_comprehensive_(?P<name>\w+?)_(?:cpu|cuda)_(?P<dtype>\w+) \(.*?\.\.\.", re.M)
_VERDICT = re.compile(r"(?:^|\.\.\. )(ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$", re.M)

#: The heading of a failure in unittest's report.
_HEADING = re.compile(r"^(?:FAIL|ERROR): test_comprehensive_(?P<name>\w+?)_(?:cpu|cuda)_(?P<dtype>\w+) .*$", re.M)

#: The line of a traceback that holds type and message.
_RAISED = re.compile(r"^[\w.]*(Error|Exception|Unsupported|Decomp)")


def test_file(checkout: str) -> Path:
    """The test in the checkout.

    Raises:
        HalideBackendError: it is not there.
    """
    path = Path(checkout) / TEST
    if not path.is_file():
        raise HalideBackendError(
            f"there is no {TEST}",
            where=checkout,
            cure="Give the root folder of a PyTorch checkout of the installed version.",
        )
    return path.resolve()


def outcomes_of(path: Path, first: int, last: int, request: Request) -> list[Outcome]:
    """Outcomes of the operators number `first` to `last` - 1 of the database.

    The kernels of all of them are counted with the first one: the test counts none.
    """
    with tempfile.TemporaryFile() as report, tempfile.TemporaryDirectory() as graphs:
        environment = {
            **os.environ,
            # A graph that Inductor's cache holds is not lowered, and its kernels would not be counted.
            "TORCHINDUCTOR_CACHE_DIR": graphs,
            "PYTORCH_TEST_RANGE_START": str(first),
            "PYTORCH_TEST_RANGE_END": str(last),
            "PYTORCH_ALL_SAMPLES": "1" if request.all_samples else "0",
            "PYTORCH_TESTING_DEVICE_ONLY_FOR": request.device,
        }
        process = subprocess.Popen(
            [sys.executable, "-c", _START, path.name, "-v"],
            cwd=path.parent,
            env=environment,
            stdout=report,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout=request.time_limit * (last - first))
            end = f"exit code {process.returncode}"
        except subprocess.TimeoutExpired:
            end = "timeout"
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        report.seek(0)
        text = report.read().decode(errors="replace")
    found = read(text, end, f"operators {first} to {last - 1}")
    return [_counted(found[0], text), *found[1:]] if found else []


def read(report: str, end: str, title: str) -> list[Outcome]:
    """The outcomes in the verbose report of unittest of a process that ended with `end`.

    `title` names the one outcome of a process in which not even the file could be imported.
    """
    errors = _errors(report)
    # The details of failures follow after the last test.
    verdicts = re.split(r"^(?:={70}|-{70})$", report, maxsplit=1, flags=re.M)[0]
    begins = list(_BEGIN.finditer(verdicts))
    stops = [begin.start() for begin in begins[1:]] + [len(verdicts)]
    found: list[Outcome] = []
    for begin, stop in zip(begins, stops, strict=False):
        name, dtype = begin["name"], begin["dtype"]
        said = verdicts[begin.end() - 4 : stop]
        verdict = _VERDICT.findall(said)
        if verdict:
            found.append(Outcome(name, dtype, *_status(verdict[-1], errors.get((name, dtype), ""))))
        else:
            status = outcome.TIMEOUT if end == "timeout" else outcome.CRASHED
            error = f"{end}\n{said[-2000:]}"
            found.append(Outcome(name, dtype, status, failures=(Failure(0, status, error),)))
    if not found and not re.search(r"^Ran 0 tests", report, re.M):
        error = f"{end}\n{report[-2000:]}"
        failure = Failure(0, "raised", error)
        found.append(Outcome(title, "", outcome.FAILED, failures=(failure,)))
    return found


def _counted(first: Outcome, report: str) -> Outcome:
    counts = re.search(r"^halide_backend.stats: (.*)$", report, re.M)
    if counts is None:
        return first
    numbers = json.loads(counts[1])
    return replace(
        first,
        native=int(numbers["native_kernels"]),
        delegated=int(numbers["delegated_kernels"]),
        reasons=numbers["delegation_reasons"],
    )


def _status(end: str, error: str) -> tuple[str, int, int, int, tuple[Failure, ...]]:
    if end.startswith(("ok", "expected failure")):
        return outcome.PASSED, 1, 0, 0, ()
    if end.startswith("skipped"):
        return outcome.NOT_RUN, 0, 0, 0, ()
    return outcome.FAILED, 1, 0, 0, (Failure(0, "raised", error or end),)


def _errors(report: str) -> dict[tuple[str, str], str]:
    found: dict[tuple[str, str], str] = {}
    headings: Sequence[re.Match[str]] = list(_HEADING.finditer(report))
    ends = [heading.start() for heading in headings[1:]] + [len(report)]
    for heading, stop in zip(headings, ends, strict=False):
        lines = report[heading.end() : stop].partition("\n\nTo execute this test")[0]
        raised = [line for line in lines.splitlines() if _RAISED.match(line)]
        found[heading["name"], heading["dtype"]] = raised[-1] if raised else lines.strip()[-300:]
    return found
