"""PyTorch's own test files for Inductor, unmodified, with this backend, and what fails there with Inductor's own too.

    python benchmarks/upstream_tests.py CHECKOUT/test/inductor/test_aot_inductor.py --only '*Cpu.*' --json table.json

Each test runs in a process of its own, forked from one that has imported the file: one that crashes or hangs is
recorded. With `--device cuda`, where files use the GPU when they are imported and no fork can use it any more, each of
`--jobs` processes runs its share of the tests, and another goes on after one that crashed. Only what does not pass with
this backend is run with Inductor's own. Run again with the same table, it keeps what is there and runs the rest. Exit
code 1 where something fails with this backend only.

A test file may be older than torch; `--before FILE.py` is run before it is imported, to give names that are no longer
there. Nothing is said of a test that fails with both.
"""

from __future__ import annotations

import argparse
import faulthandler
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
from queue import SimpleQueue
from threading import Thread
from typing import Any, TextIO

#: Faster C++ compilations, of the wrapper alone; and no compiler is tried out for the vector instructions it knows.
QUICK = {
    "AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL": "O0",
    "TORCHINDUCTOR_VEC_ISA_OK": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
STOCK = {"cpu": "cpp", "cuda": "triton"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="a test file of a PyTorch checkout")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="PATTERN", help="of Class.test_name; default: all")
    parser.add_argument("--device", choices=STOCK, default="cpu", help="which backend is chosen (default: %(default)s)")
    parser.add_argument("--before", type=Path, metavar="FILE.py")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="the table, kept and added to")
    parser.add_argument("--jobs", type=int, default=1, help="tests at a time (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one test (default: %(default)g)")
    parser.add_argument(
        "--seconds",
        type=float,
        default=float("inf"),
        help="begin no test after this time, nor with this backend after 0.7 of it",
    )
    parser.add_argument("--serve", choices=("halide_backend", *STOCK.values()), help=argparse.SUPPRESS)
    parser.add_argument("--share", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.file = asked.file.resolve()
    return serve(asked) if asked.serve else compare(asked)


def compare(asked: argparse.Namespace) -> int:
    """Run what is not in the table yet; returns the exit code."""
    started = time.monotonic()
    table: dict[str, dict[str, Any]] = json.loads(asked.json.read_text())["tests"] if asked.json.exists() else {}
    for backend in ("halide_backend", STOCK[asked.device]):
        is_stock = backend != "halide_backend"
        deadline = started + asked.seconds * (1 if is_stock else 0.7)
        tests = [name for name, row in table.items() if row["verdict"] == "failed"] if is_stock else []
        if is_stock and not tests:
            break
        for row in (served if asked.device == "cpu" else shared)(
            asked, backend, tests, set(table) - set(tests), deadline
        ):
            name = f"{asked.file.name}::{row.pop('test')}"
            if is_stock:
                table[name]["stock"] = row
                table[name]["verdict"] = compared(table[name], row)
            else:
                table[name] = row
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
    with Server(asked, backend, tests, known, deadline) as server:
        yield from server
    if server.code:
        raise SystemExit(f"{backend}: the process that runs tests: {server.last_words()}")


def shared(
    asked: argparse.Namespace, backend: str, tests: Sequence[str], known: set[str], deadline: float
) -> Iterator[dict[str, Any]]:
    """The same of several processes at once."""
    results: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def run_share(number: int) -> None:
        done = set(known)
        try:
            while True:
                begun, before = "", len(done)
                with Server(asked, backend, tests, done, deadline, number) as server:
                    for row in server:
                        begun = row.get("begun", "")
                        if not begun:
                            done.add(f"{asked.file.name}::{row['test']}")
                            results.put(row)
                if begun:
                    done.add(f"{asked.file.name}::{begun}")
                    results.put({"test": begun, "seconds": 0, "verdict": "failed", "error": server.last_words()})
                elif not server.code or len(done) == before:
                    break
            if server.code:
                print(f"{backend}: a process that runs tests: {server.last_words()}", file=sys.stderr)
        finally:
            results.put(None)

    running = [Thread(target=run_share, args=(number,)) for number in range(asked.jobs)]
    for thread in running:
        thread.start()
    for _ in running:
        yield from iter(results.get, None)


class Server:
    """A process that runs tests; iteration gives what it says."""

    def __init__(
        self,
        asked: argparse.Namespace,
        backend: str,
        tests: Sequence[str],
        known: set[str],
        deadline: float,
        share: int = 0,
    ) -> None:
        self.folder, self.limit = tempfile.TemporaryDirectory(prefix="upstream-"), asked.limit
        request, self.errors = Path(self.folder.name) / "request.json", Path(self.folder.name) / "errors"
        request.write_text(json.dumps({"tests": list(tests), "known": sorted(known), "deadline": deadline}))
        environment = {**QUICK, **os.environ, "UPSTREAM_TESTS_REQUEST": str(request)}
        if backend != "halide_backend":
            environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # torch without a trace of this package
        if asked.device == "cuda":
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(Path(self.folder.name) / "cache")
        command = [sys.executable, __file__, *sys.argv[1:], "--serve", backend, "--share", str(share)]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                command, env=environment, cwd=asked.file.parent, stdout=subprocess.PIPE, stderr=errors, text=True
            )

    def __enter__(self) -> Server:
        return self

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        return map(json.loads, self.process.stdout)

    def __exit__(self, *_: object) -> None:
        self.code = self.process.wait()
        self.said = self.errors.read_text(errors="replace")
        self.folder.cleanup()

    def last_words(self) -> str:
        """How the process ended."""
        timeout = re.search(r"^Timeout \(", self.said, re.MULTILINE)  # written by faulthandler
        return f"timeout: {self.limit:g} s" if timeout else f"exit status {self.code}: {self.said[-500:]}"


def serve(asked: argparse.Namespace) -> int:
    """Import the file and run tests; one line of JSON for each on standard output."""
    request = json.loads(Path(os.environ["UPSTREAM_TESTS_REQUEST"]).read_text())
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    from torch._inductor import config

    if asked.serve == "halide_backend":
        import halide_backend  # noqa: F401, where it is not installed torch does not import it
    setattr(config, f"{asked.device}_backend", asked.serve)
    # They would be made anew for each test, which has caches of its own.
    config.cpp_cache_precompile_headers = config.aot_inductor.precompile_headers = False
    if asked.before:
        runpy.run_path(str(asked.before))
    sys.path[:0] = ["", str(asked.file.parent)]
    module = __import__(asked.file.stem)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    tests = {".".join(test.id().split(".")[-2:]): test for test in flat(suite)}

    wanted = [
        name
        for name in tests
        if f"{asked.file.name}::{name}" in request["tests"]
        or (not request["tests"] and any(fnmatch(name, pattern) for pattern in asked.only))
    ]
    of_cuda = asked.device == "cuda"
    wanted = [
        name
        for name in (wanted[asked.share :: asked.jobs] if of_cuda else wanted)
        if f"{asked.file.name}::{name}" not in request["known"]
    ]
    run_all = run_in_turn if of_cuda else run_forks
    run_all({name: tests[name] for name in wanted}, asked, answers, request["deadline"])
    return 0


def run_in_turn(
    tests: dict[str, unittest.TestCase], asked: argparse.Namespace, answers: TextIO, deadline: float
) -> None:
    """One after the other in this process, which ends with the first that takes too long or leaves an error of CUDA."""
    for name, test in tests.items():
        if time.monotonic() >= deadline:
            return
        print(json.dumps({"begun": name}), file=answers, flush=True)
        started = time.monotonic()
        faulthandler.dump_traceback_later(asked.limit, exit=True)
        found = run(test)
        faulthandler.cancel_dump_traceback_later()
        print(
            json.dumps({"test": name, "seconds": round(time.monotonic() - started, 1), **found}),
            file=answers,
            flush=True,
        )
        if "CUDA error" in found.get("error", ""):
            sys.exit("CUDA is of no use to this process any more")


def run_forks(tests: dict[str, unittest.TestCase], asked: argparse.Namespace, answers: TextIO, deadline: float) -> None:
    """Each in a fork of this process, several at a time."""
    wanted, running = list(tests), list[Fork]()
    while wanted or running:
        while wanted and len(running) < asked.jobs and time.monotonic() < deadline:
            running.append(Fork(wanted[0], tests[wanted.pop(0)], asked.limit))
        if not running:
            break
        for fork in [fork for fork in running if fork.ended()]:
            running.remove(fork)
            print(json.dumps(fork.found()), file=answers, flush=True)
        time.sleep(0.05)


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
    if "halide_backend" in sys.modules:
        import halide_backend

        halide_backend.reset_stats()
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
    return re.sub(r"/\S+/site-packages", "site-packages", re.sub(r"/tmp/\S+", "FILE", said))[:1000]


if __name__ == "__main__":
    sys.exit(main())
