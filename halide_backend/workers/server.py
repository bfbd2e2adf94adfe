"""The parent's side: a server process and its workers, started, asked, ended."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from halide_backend.errors import WorkerCrashed, WorkerNotStarted, WorkerOutOfMemory, WorkerTimeout
from halide_backend.workers.serving import OUT_OF_MEMORY
from halide_backend.workers.task import Task

#: Seconds that a worker gets beyond a task's limit, which the operating system enforces.
GRACE_S = 5.0

#: Of what a process prints, enough for the hundred frames of a stack, whose innermost comes first.
_TAIL_BYTES = 16_000


@dataclass(frozen=True)
class Program:
    """What a server runs, and what to do when its workers fail.

    Attributes:
        title: what messages call it, "compile worker" for example.
        command: returns a program that calls `serving.serve`; asked whenever a server is started.
        environment: returns all its environment variables.
        start_limit: seconds after which a server that was started counts as failed.
        crash_cure, timeout_cure: the advice that errors give.
    """

    title: str
    command: Callable[[], Sequence[str]]
    environment: Callable[[], Mapping[str, str]]
    start_limit: float = 60.0
    crash_cure: str = ""
    timeout_cure: str = ""

    def not_started(self, reason: str) -> WorkerNotStarted:
        """Return the error that there is no server."""
        return WorkerNotStarted(
            f"the {self.title} could not start: {reason}",
            where=sys.executable or "sys.executable",
            cure="Run `halide-backend doctor`, which says what is missing.",
        )

    def crashed(self, task: Task, what: str, output: str = "") -> WorkerCrashed:
        """Return the error that a task came to a bad end."""
        return WorkerCrashed(f"{what}\n{output}".strip(), where=task.name, cure=self.crash_cure)

    def out_of_memory(self, task: Task, output: str) -> WorkerOutOfMemory:
        """Return the error that a task needs more memory than its limit."""
        what = f"it needs more than the allowed {task.limits.memory >> 20} MB\n{output}".strip()
        return WorkerOutOfMemory(what, where=task.name, cure=self.crash_cure)

    def late(self, task: Task, output: str) -> WorkerTimeout:
        """Return the error that a task's time is over."""
        what = f"it takes longer than the limit of {task.limits.seconds:g} s\n{output}".strip()
        return WorkerTimeout(what, where=task.name, cure=self.timeout_cure)


class ServerGone(Exception):
    """The server ended while a task was with one of its workers; the text says how, with its output."""


class Server:
    """A server process and the control socket to it. Safe from several threads."""

    def __init__(self, program: Program) -> None:
        """Start the process and wait until it is ready.

        Raises:
            WorkerNotStarted: it does not start; the message has its last lines.
        """
        self.program = program
        self.killed = False
        self._lock = threading.Lock()
        self._output = _Output()
        self._control, there = socket.socketpair()
        with there:
            self._process = self._started(there)
        ready = b""
        try:
            self._control.settimeout(program.start_limit)
            with contextlib.suppress(OSError):
                ready = self._control.recv(16)
            self._control.settimeout(None)
        finally:
            if not ready:
                self.kill()
        if not ready:
            raise program.not_started(f"it {self._end()}")

    def _started(self, standard_input: socket.socket) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                self.program.command(),
                stdin=standard_input.fileno(),
                stdout=self._output.file,
                stderr=self._output.file,
                env=self.program.environment(),
                # Away from the terminal's signals: Ctrl-C is for this process to handle.
                start_new_session=True,
            )
        except OSError as error:
            self._control.close()
            raise self.program.not_started(str(error)) from error

    def fork(self) -> Fork:
        """Ask for a worker; if the server is gone, its first task says so."""
        conversation, its_conversation = socket.socketpair()
        lifeline, its_lifeline = socket.socketpair()
        output = _Output()
        with its_conversation, its_lifeline, self._lock, contextlib.suppress(OSError):
            files = [its_conversation.fileno(), its_lifeline.fileno(), output.file]
            socket.send_fds(self._control, [b"f"], files)
        return Fork(self, conversation, lifeline, output)

    def kill(self) -> None:
        """End the process and its workers, and collect its exit status."""
        self.killed = True
        # Asked first: it kills what its workers have started as well.
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._control.close()
        self._process.kill()
        self._process.wait()

    def disown(self) -> None:
        """In a forked child: close the copies of what belongs to the parent."""
        self._control.close()
        # Not this process's to wait for: without this, the destructor would complain.
        self._process.returncode = 0

    def gone(self) -> ServerGone:
        """End it, unless it has just ended by itself, and return how it ended."""
        self.kill()
        return ServerGone(f"the {self.program.title} {self._end()}")

    def _end(self) -> str:
        return f"{_how(self._process.returncode)}\n{self._output.tail()}".strip()


class Fork:
    """A worker: the conversation with it, the lifeline by which the server tells its end, and what it prints.

    For one thread, but for `kill`.
    """

    def __init__(self, server: Server, conversation: socket.socket, lifeline: socket.socket, output: _Output) -> None:
        self.server = server
        self._conversation = conversation
        self._stream = conversation.makefile("rwb")
        self._lifeline = lifeline
        self._output = output

    def run(self, task: Task, on_report: Callable[[Any], None]) -> tuple[Any, str]:
        """Run a task; return its answer and the end of what it printed.

        Raises:
            ServerGone: the server died, and the worker with it.
            WorkerTimeout, WorkerCrashed: the worker is dead.
            HalideBackendError: as the task.
        """
        self._output.clear()
        self._conversation.settimeout(task.limits.seconds + GRACE_S)
        try:
            # Nothing is lost by listening after a failure: what comes back tells why.
            with contextlib.suppress(ConnectionError):
                self._stream.write(pickle.dumps((task.content, task.limits)))
                self._stream.flush()
            while True:
                kind, value = pickle.load(self._stream)
                if kind == "answer":
                    return value, self._output.tail()
                if kind == "error":
                    raise value
                on_report(value)
        except TimeoutError:
            self.kill()
            with contextlib.suppress(ServerGone):
                self._ended()
            raise self.server.program.late(task, self._output.tail()) from None
        except (EOFError, ConnectionError, pickle.UnpicklingError):
            raise self._error(task, *self._ended()) from None

    def kill(self) -> None:
        """Let the server kill it; to a `run` that waits in another thread this is a crash."""
        # Closing is not enough, here and below, while a forked child of this process has a copy.
        with contextlib.suppress(OSError):
            self._lifeline.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Kill it and let go of it."""
        self.kill()
        with contextlib.suppress(OSError):
            self._conversation.shutdown(socket.SHUT_RDWR)
        self.disown()

    def disown(self) -> None:
        """Let go of it, in a forked child: it is the parent's."""
        with contextlib.suppress(OSError):
            self._stream.close()
        self._conversation.close()
        self._lifeline.close()

    def _ended(self) -> tuple[int, int]:
        """Exit status and peak memory in MiB."""
        self._lifeline.settimeout(GRACE_S)
        for _ in range(2):
            try:
                told = self._lifeline.recv(64)
            except TimeoutError:
                # It has closed the conversation and lives on.
                self.kill()
                continue
            except ConnectionError:
                break
            if told:
                code, peak = map(int, told.split())
                return code, peak
            break
        raise self.server.gone()

    def _error(self, task: Task, code: int, peak: int) -> WorkerCrashed | WorkerTimeout:
        program, output = self.server.program, self._output.tail()
        if code == OUT_OF_MEMORY or "bad_alloc" in output or "out of memory" in output.lower():
            return program.out_of_memory(task, output)
        if code == -signal.SIGALRM:
            return program.late(task, output)
        return program.crashed(task, f"its process {_how(code)}, at {peak} MB", output)


class _Output:
    """What a process prints, in a file in memory."""

    def __init__(self) -> None:
        self.file = os.memfd_create("output")
        # Written at its end even after it was cleared.
        fcntl.fcntl(self.file, fcntl.F_SETFL, os.O_APPEND)

    def clear(self) -> None:
        os.ftruncate(self.file, 0)

    def tail(self) -> str:
        size = os.fstat(self.file).st_size
        start = max(0, size - _TAIL_BYTES)
        return os.pread(self.file, size - start, start).decode(errors="replace").strip()

    def __del__(self) -> None:
        os.close(self.file)


def _how(code: int | None) -> str:
    if code is None or code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
