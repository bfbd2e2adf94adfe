"""PyTorch's own test files for Inductor, unmodified, with this backend, and what fails there with Inductor's own too.

    python benchmarks/upstream_tests.py CHECKOUT/test/inductor/test_aot_inductor.py --only '*Cpu.*' --json table.json

Each test runs in a process of its own, forked from one that has imported the file: one that crashes or hangs is
recorded. Only what does not pass with this backend is run with Inductor's C++ backend. Run again with the same table,
it keeps what is there and runs the rest. Exit code 1 where something fails with this backend only.

A test file may be older than torch; `--before FILE.py` is run before it is imported, to give names that are no longer
there. Nothing is said of a test that fails with both.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

#: Faster C++ compilations, of the wrapper alone; and no compiler is tried out for the vector instructions it knows.
QUICK = {
    "AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL": "O0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a test file of a PyTorch checkout")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="of Class.test_name; default: all")
    parser.add_argument("--before", type=Path, metavar="FILE.py")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="the table, kept and added to")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one test (default: %(default)g)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no test after this time")
    parser.add_argument("--serve", choices=("halide_backend", "cpp"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.file = asked.file.resolve()
    return serve(asked) if asked.serve else compare(asked)


def compare(asked: argparse.Namespace) -> int:
    """Run what is not in the table yet; returns the exit code."""
    deadline = time.monotonic() + asked.seconds
    table: dict[str, dict[str, Any]] = json.loads(asked.json.read_text())["tests"] if asked.json.exists() else {}
    for backend in ("halide_backend", "cpp"):
        tests = [name for name, row in table.items() if row["verdict"] == "failed"] if backend == "cpp" else []
        if backend == "cpp" and not tests:
            break
        for row in served(asked, backend, tests, set(table), deadline):
            name = f"{asked.file.name}::{row.pop('test')}"
            if backend == "halide_backend":
                table[name] = row
            else:
                table[name]["stock"] = row
                table[name]["verdict"] = compared(table[name], row)
            said = f"{table[name]['verdict']:20} {row['seconds']:6.1f} s  {name}  {row.get('error', '')[:150]}"
            print(said, flush=True)
            write(asked.json, table)
    write(asked.json, table)
    print(dict(Counter(row["verdict"] for row in table.values())))
    return int(any(row["verdict"] == "fails with this backend only" for row in table.values()))


def compared(ours: dict[str, Any], stock: dict[str, Any]) -> str:
    """The verdict on a test that fails with this backend."""
    if stock["verdict"] in ("passed", "skipped"):
        return "fails with this backend only"
    same = ours["error"].partition(":")[0] == stock["error"].partition(":")[0]
    return "same failure as stock" if same else "another failure than stock"


def write(file: Path, table: dict[str, dict[str, Any]]) -> None:
    from halide_backend.inspection import machine

    file.write_text(json.dumps({**machine.facts(), "tests": table}, indent=1) + "\n")


def served(
    asked: argparse.Namespace, backend: str, tests: Sequence[str], known: set[str], deadline: float
) -> Iterator[dict[str, Any]]:
    """Results of a process that runs tests with `backend`: those named, or all that are asked for and not known."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as request:
        json.dump({"tests": list(tests), "known": sorted(known), "deadline": deadline}, request)
        request.flush()
        environment = {**QUICK, **os.environ, "UPSTREAM_TESTS_REQUEST": request.name}
        if backend == "cpp":
            environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch without a trace of this package
        command = [sys.executable, __file__, *sys.argv[1:], "--serve", backend]
        with subprocess.Popen(
            command, env=environment, cwd=asked.file.parent, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)
        if process.returncode:
            raise SystemExit(f"{backend}: the process that runs tests ended with {process.returncode}")


def serve(asked: argparse.Namespace) -> int:
    """Import the file and run tests, each in a fork of this process; one line of JSON for each on standard output."""
    request = json.loads(Path(os.environ["UPSTREAM_TESTS_REQUEST"]).read_text())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    from torch._inductor import config

    config.cpu_backend = asked.serve
    # They would be made anew for each test, which has caches of its own.
    config.cpp_cache_precompile_headers = config.aot_inductor.precompile_headers = False
    if asked.before:
        runpy.run_path(str(asked.before))
    sys.path[:0] = ["", str(asked.file.parent)]
    module = __import__(asked.file.stem)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    tests = {".".join(test.id().split(".")[-2:]): test for test in flat(suite)}

    def is_wanted(test: str) -> bool:
        name = f"{asked.file.name}::{test}"
        if request["tests"]:
            return name in request["tests"]
        return name not in request["known"] and any(fnmatch(test, pattern) for pattern in asked.only)

    wanted = list(filter(is_wanted, tests))
    running: list[Fork] = []
    while wanted or running:
        while wanted and len(running) < asked.jobs and time.monotonic() < request["deadline"]:
            running.append(Fork(wanted[0], tests[wanted.pop(0)], asked.limit))
        if not running:
            break
        for fork in [fork for fork in running if fork.ended()]:
            running.remove(fork)
            print(json.dumps(fork.found()), file=answers, flush=True)
        time.sleep(0.05)
    return 0


def flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """The tests of a suite of suites."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from flat(each)
        else:
            yield each


class Fork:
    """One test in a process of its own."""

    def __init__(self, name: str, test: unittest.TestCase, limit: float) -> None:
        self.name, self.limit, self.started = name, limit, time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="upstream-"))
        self.process = os.fork()
        if self.process == 0:
            os.setsid()
            output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder / "cache")
            (self.folder / "result.json").write_text(json.dumps(run(test)))
            sys.exit()  # and not os._exit: destructors run, which is where some models of torch's crash

    def ended(self) -> bool:
        """Whether the process ended, or its time did."""
        self.over = time.monotonic() > self.started + self.limit
        return self.over or bool(os.waitid(os.P_PID, self.process, os.WEXITED | os.WNOHANG | os.WNOWAIT))

    def found(self) -> dict[str, Any]:
        """Verdict, seconds, kernels that were made, and the error."""
        with suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        _, status = os.waitpid(self.process, 0)
        result, output = self.folder / "result.json", self.folder / "output"
        found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
        if self.over:
            found.update(verdict="failed", error=f"timeout: {self.limit:g} s")
        elif status or not found:
            said = output.read_text(errors="replace")[-500:] if output.exists() else ""
            found.update(verdict="failed", error=f"exit status {os.waitstatus_to_exitcode(status)}: {said}")
        shutil.rmtree(self.folder, ignore_errors=True)
        return {"test": self.name, "seconds": round(time.monotonic() - self.started, 1), **found}


def run(test: unittest.TestCase) -> dict[str, Any]:
    """Run one test here."""
    result = unittest.TestResult()
    unittest.TestSuite([test]).run(result)
    bad = [*result.failures, *result.errors]
    found: dict[str, Any] = {"verdict": "failed" if bad or result.unexpectedSuccesses else "passed"}
    if result.skipped and not bad:
        found = {"verdict": "skipped", "reason": result.skipped[0][1][:200]}
    elif result.expectedFailures:
        found["verdict"] = "passed"
    if found["verdict"] == "failed":
        found["error"] = error(bad[0][1]) if bad else "unexpected success:"
    if "halide_backend" in sys.modules:
        import halide_backend

        counts = halide_backend.stats()
        found["native"], found["delegated"] = counts["native_kernels"], counts["delegated_kernels"]
    return found


def error(traceback: str) -> str:
    """The lines of a traceback that name the error, without what changes from run to run."""
    lines = traceback.partition("\nTo execute this test")[0].strip().splitlines()
    raised = [
        number for number, line in enumerate(lines) if re.match(r"[\w.]*(Error|Exception|Exit|Failed|\w+):", line)
    ]
    said = "\n".join(lines[raised[-1] if raised else -1 :])
    return re.sub(r"/tmp/\S+", "FILE", said)[:1000]


if __name__ == "__main__":
    sys.exit(main())
