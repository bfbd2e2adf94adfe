"""The parent's side of one worker process: start it, ask it, end it when it hangs."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from select import select
from typing import Any

from halide_backend.errors import HalideBackendError
from halide_backend.opinfo import outcome
from halide_backend.opinfo.case import Case
from halide_backend.opinfo.outcome import Failure, Outcome

#: Seconds for a worker to start: it imports torch and its database.
START_LIMIT = 600.0

#: Cases after which a worker is replaced: torch keeps some memory of everything that it compiles.
LIFETIME = 150

#: What a worker runs.
COMMAND = (sys.executable, "-m", "halide_backend.opinfo.worker")


class Worker:
    """One worker process after another, as long as cases come; not for several threads at once."""

    def __init__(self, folder: str, command: Sequence[str] = COMMAND) -> None:
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._log: Any = None
        self._buffer = b""
        self._age = 0

    def check(self, case: Case, time_limit: float) -> Outcome:
        """The outcome of `case`; each of its samples may take `time_limit` seconds."""
        started = time.monotonic()
        self._start()
        self._age += 1
        sample = -1
        mark = self._log.tell()
        try:
            self._tell(asdict(case))
            limit = time_limit
            while True:
                message = self._hear(limit)
                if "sample" in message:
                    sample = message["sample"]
                if "outcome" in message:
                    return Outcome.from_json(message["outcome"])
        except TimeoutError:
            self._interrupt()
            status, kind = outcome.TIMEOUT, f"no answer in {time_limit:g} s"
        except (BrokenPipeError, EOFError):
            status, kind = outcome.CRASHED, self._end()
        log = self._said(mark)
        self.close()
        failure = Failure(sample, status, f"{kind}\n{log}".strip())
        return Outcome(
            case.op,
            case.dtype,
            status,
            failures=(failure,),
            seconds=round(time.monotonic() - started, 3),
        )

    def close(self) -> None:
        """End the process and everything that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, self._log):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def _start(self) -> None:
        if self._process is not None and self._age >= LIFETIME:
            self.close()
        if self._process is not None:
            return
        self._age = 0
        self._buffer = b""
        self._log = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": os.path.join(self._folder, "inductor")},
            # A group of its own, so that compile workers and compilers end with it.
            start_new_session=True,
        )
        try:
            self._hear(START_LIMIT)
        except (EOFError, TimeoutError):
            said = self._said(0)
            self.close()
            raise HalideBackendError(
                f"a worker process does not start:\n{said}",
                where="opinfo",
                cure=f"Run {shlex.join(self._command)} by hand; `halide-backend doctor` may tell more.",
            ) from None

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _hear(self, limit: float) -> dict[str, Any]:
        assert self._process is not None and self._process.stdout is not None
        stream = self._process.stdout.fileno()
        deadline = time.monotonic() + limit
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select([stream], [], [], left)[0]:
                raise TimeoutError
            part = os.read(stream, 1 << 16)
            if not part:
                raise EOFError
            self._buffer += part
        line, self._buffer = self._buffer.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _interrupt(self) -> None:
        """Make a process that hangs write down where."""
        assert self._process is not None
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)
            time.sleep(0.5)

    def _end(self) -> str:
        assert self._process is not None
        code = self._process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"

    def _said(self, mark: int) -> str:
        """The last lines that the process wrote, from `mark` on."""
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(mark, self._log.tell() - 3000))
        text: str = self._log.read().decode(errors="replace")
        return "\n".join(text.splitlines()[-25:])
