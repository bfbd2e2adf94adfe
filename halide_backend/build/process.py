"""The worker process as the rest of this process sees it: started, asked, ended."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halide_backend import errors
from halide_backend.build import frames
from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.target import Target
from halide_backend.errors import HalideBackendError, WorkerCrashed, WorkerTimeout

#: Seconds after which a worker that was started counts as failed; it takes ~0.15 when idle.
START_LIMIT_S = 60.0
#: Seconds that a worker gets beyond a kernel's own limit, which it enforces itself.
GRACE_S = 5.0

_TAIL_BYTES = 4000
_REPORT = "Report it with the kernel's text; meanwhile this kernel can be left to another backend."


@dataclass(frozen=True)
class Request:
    """One kernel to compile.

    Attributes:
        text, target, entry, name: as for `compiler.compile_kernel`.
        time_limit: seconds, from when its compilation begins.
        memory_limit: bytes of data that its compilation may hold at a time.
    """

    text: str
    target: Target
    entry: str
    name: str
    time_limit: float
    memory_limit: int

    def crashed(self, what: str, output: str = "") -> WorkerCrashed:
        """Return the error that this kernel's compilation came to a bad end."""
        last = f"\n{output}" if output else ""
        return WorkerCrashed(f"{what}{last}", where=f"kernel {self.name}", cure=_REPORT)

    def late(self) -> WorkerTimeout:
        """Return the error that this kernel's time is over."""
        return WorkerTimeout(
            f"it takes longer to compile than the limit of {self.time_limit:g} s",
            where=f"kernel {self.name}",
            cure="Raise the option compile_time_limit, or report it with the kernel's text.",
        )


class WorkerGone(Exception):
    """The worker process ended while a kernel was with it; the text says how, with its output."""


class WorkerProcess:
    """A worker process and the socket to it. Safe from several threads."""

    def __init__(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            WorkerCrashed: it does not start; the message has its last lines.
        """
        self._lock = threading.Lock()
        self._output = os.memfd_create("halide_compile_worker")
        self._control, there = socket.socketpair()
        with there:
            self._process = self._started(there)
        ready = b""
        try:
            self._control.settimeout(START_LIMIT_S)
            with contextlib.suppress(OSError):
                ready = self._control.recv(16)
            self._control.settimeout(None)
        finally:
            if not ready:
                self.kill()
        if not ready:
            raise _not_started(f"it {self._end()}")

    def _started(self, standard_input: socket.socket) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                _command(),
                stdin=standard_input.fileno(),
                stdout=self._output,
                stderr=self._output,
                env=_environment(),
                # Away from the terminal's signals: Ctrl-C is for this process to handle.
                start_new_session=True,
            )
        except OSError as error:
            self._control.close()
            raise _not_started(str(error)) from error

    @property
    def id(self) -> int:
        """The process id."""
        pid: int = self._process.pid
        return pid

    def compile(self, request: Request) -> CompiledKernel:
        """Compile one kernel in a fork of the worker.

        Raises:
            WorkerGone: the worker died.
            TimeoutError: it does not answer, although the kernel's time is over.
            HalideBackendError: as `pool.WorkerPool.submit`.
        """
        here, there = socket.socketpair()
        with here:
            here.settimeout(request.time_limit + GRACE_S)
            with there, self._lock, contextlib.suppress(OSError):
                socket.send_fds(self._control, [b"k"], [there.fileno()])
            # Nothing is lost by going on after a failure: what comes back tells why.
            with contextlib.suppress(ConnectionError):
                frames.send(here, _header(request), request.text.encode())
            try:
                answer, body = frames.receive(here)
            except frames.Broken:
                raise self._gone() from None
        return _result(request, answer, body)

    def kill(self) -> None:
        """End the process, its forks with it, and collect its exit status."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def disown(self) -> None:
        """In a forked child: close the copies of what belongs to the parent."""
        self._control.close()
        # Not this process's to wait for: without this, the destructor would complain.
        self._process.returncode = 0

    def _gone(self) -> WorkerGone:
        # The worker itself reports how a kernel's process ended, so silence means that the worker
        # ended; so does a message cut short, unless a kernel was killed while it answered.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self.kill()
        return WorkerGone(f"the compile worker {self._end()}")

    def _end(self) -> str:
        size = os.fstat(self._output).st_size
        start = max(0, size - _TAIL_BYTES)
        told = os.pread(self._output, size - start, start).decode(errors="replace").strip()
        return f"{_how(self._process.returncode)}\n{told}".strip()

    def __del__(self) -> None:
        if hasattr(self, "_output"):
            os.close(self._output)


def _not_started(reason: str) -> WorkerCrashed:
    return WorkerCrashed(
        f"the compile worker could not start: {reason}",
        where=sys.executable or "sys.executable",
        cure="Run `halide-backend doctor`, which says what is missing.",
    )


def _command() -> list[str]:
    if not sys.executable:
        raise _not_started("this process does not know its Python interpreter")
    # Without site and the current directory: no .pth file and nothing nearby has a say, and it
    # starts faster. The packages are found where this process finds them.
    places: dict[str, None] = {}
    for package in ("halide_backend", "halide", "llvmlite"):
        found = importlib.util.find_spec(package)
        for location in (found.submodule_search_locations or ()) if found else ():
            places[str(Path(location).resolve().parent)] = None
    code = (
        f"import sys; sys.path[:1] = []; sys.path += {list(places)!r}; "
        "from halide_backend.build.worker import main; main()"
    )
    return [sys.executable, "-s", "-S", "-c", code, "halide_backend compile worker"]


def _environment() -> dict[str, str]:
    """Leave out what would make a worker compile differently here than elsewhere."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "PYTHONHOME" or not name.startswith(("HL_", "PYTHON"))
    }
    # Sets of strings are iterated in the same order in every worker.
    return {**kept, "PYTHONHASHSEED": "0"}


def _header(request: Request) -> dict[str, Any]:
    return {
        "target": request.target.to_json(),
        "entry": request.entry,
        "name": request.name,
        "time_limit": request.time_limit,
        "memory_limit": request.memory_limit,
    }


def _result(request: Request, answer: dict[str, Any], body: bytes) -> CompiledKernel:
    kind, output = answer["kind"], answer.get("output", "")
    if kind == "kernel":
        split = answer["object_bytes"]
        return CompiledKernel(body[:split], answer["manifest"], answer["seconds"], body[split:], output)
    if kind == "error":
        error: type[HalideBackendError] = getattr(errors, answer["error"])
        raise error(answer["what"], where=answer["where"], cure=answer["cure"])
    if kind == "out of memory" or "bad_alloc" in output or "out of memory" in output.lower():
        allowed = request.memory_limit >> 20
        raise request.crashed(f"its compilation needs more than the allowed {allowed} MB", output)
    if answer["code"] == -signal.SIGALRM:
        raise request.late()
    used = answer["peak_mb"]
    raise request.crashed(f"its compilation {_how(answer['code'])}, at {used} MB", output)


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
