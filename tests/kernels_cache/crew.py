"""Processes for the tests: scenarios run in a fresh interpreter, which forks a crew.

A test calls `scenario("races", "single_flight", ...)`; the named function of the module
`scenario_races` runs in a new Python that has imported nothing but this package, so that forking
hundreds of children is safe and cheap whatever the test process has loaded.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# A guard against a deadlock, not a claim about speed.
DEADLOCK_S = 1800.0


def scenario(module: str, function: str, prefix: Iterable[str] = (), **arguments: Any) -> Any:
    """Run `function` of `scenario_<module>` in a fresh interpreter and return its result."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("HALIDE_BACKEND_", "PYTEST_"))
    }
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(HERE)])
    done = subprocess.run(
        [*prefix, sys.executable, str(HERE / "crew.py"), f"scenario_{module}", function],
        input=json.dumps(arguments),
        capture_output=True,
        text=True,
        env=environment,
        timeout=DEADLOCK_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def fork(work: Callable[[], Any]) -> tuple[int, int]:
    """Do `work` in a child process; returns its pid and a pipe for `result`."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        return pid, reading
    status = 1
    try:
        os.close(reading)
        text = json.dumps(work())
        with os.fdopen(writing, "w") as pipe:
            pipe.write(text)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def result(pid: int, pipe: int) -> tuple[int, Any]:
    """Wait for a child of `fork`; returns its status (negative: the signal) and its result."""
    with os.fdopen(pipe) as stream:
        text = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, json.loads(text) if text else None


def together(works: Iterable[Callable[[], Any]]) -> list[Any]:
    """Do all works at the same time, a process each; returns their results."""
    children = [fork(work) for work in works]
    results = [result(*child) for child in children]
    assert all(status == 0 for status, _ in results), [status for status, _ in results]
    return [value for _, value in results]


def killed_soon(pid: int, after_s: float) -> None:
    """Kill a child that this process forked."""
    time.sleep(after_s)
    os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    chosen = getattr(importlib.import_module(sys.argv[1]), sys.argv[2])
    print(json.dumps(chosen(**json.load(sys.stdin))))
