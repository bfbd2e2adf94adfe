"""The parent's side of a session: start it, hand it its task, listen until it ends."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from halide_backend.demonstration.session import Task
from halide_backend.inspection.process_audit import SESSION

#: A session that takes longer than this hangs: the slowest, C++ on one core, needs about a quarter
#: of it.
LIMIT_SECONDS = 600.0
#: A session that has answered only has to let go of its workers.
END_SECONDS = 30.0
_LINGERS = "it answered but did not end"


class SessionFailed(Exception):
    """A session died, hung or raised; the message is one line."""


def run(task: Task, log: Path, tick: Callable[[str], None]) -> dict[str, Any]:
    """The result of `task`, done by a fresh process; `tick` is called at least twice a second.

    What the process prints goes to the file `log`, which stays only when it failed.

    Raises:
        SessionFailed: the process ended without a result or with an error, or took longer than
            LIMIT_SECONDS.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as errors, _ends_like_an_interrupt(signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-m", SESSION],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            # A group of its own, so that its compilers and workers can be ended with it.
            start_new_session=True,
        )
        try:
            result = _talk(process, task, tick)
            process.wait(timeout=END_SECONDS)
        except subprocess.TimeoutExpired:
            raise SessionFailed(_LINGERS) from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if result is None or process.returncode != 0:
        raise SessionFailed(_epitaph(process.returncode, log))
    log.unlink()
    return result


@contextmanager
def _ends_like_an_interrupt(number: signal.Signals) -> Iterator[None]:
    """Let a signal raise KeyboardInterrupt: a process that dies of it would leave the session running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _talk(process: subprocess.Popen[str], task: Task, tick: Callable[[str], None]) -> dict[str, Any] | None:
    if process.stdin is None or process.stdout is None:
        raise RuntimeError("a session was started without pipes")
    # A process that died at once is reported by its end, not by the broken pipe.
    with suppress(BrokenPipeError), process.stdin as stdin:
        json.dump(asdict(task), stdin)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True).start()
    deadline = time.monotonic() + LIMIT_SECONDS
    doing, result = "", None
    while True:
        if time.monotonic() > deadline:
            raise SessionFailed(f"no answer after {LIMIT_SECONDS:.0f} s" if result is None else _LINGERS)
        with suppress(queue.Empty):
            line = lines.get(timeout=0.5)
            if not line:
                return result
            answer = json.loads(line)
            doing = answer.get("progress", doing)
            if "result" in answer:
                result, deadline = answer["result"], time.monotonic() + END_SECONDS
        tick(doing)


def _forward(stdout: TextIO, lines: queue.SimpleQueue[str]) -> None:
    for line in stdout:
        lines.put(line)
    lines.put("")


def _epitaph(status: int, log: Path) -> str:
    last = (log.read_text(errors="replace").strip().splitlines() or ["it wrote no message"])[-1]
    end = f"exit status {status}"
    if status < 0:
        with suppress(ValueError):
            end = f"killed by {signal.Signals(-status).name}"
    return f"{end}: {last.strip()} (see {log})"
