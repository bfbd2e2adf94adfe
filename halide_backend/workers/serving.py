"""The server's side: a process that forks a worker for whoever asks on its standard input, a Unix socket."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import faulthandler
import gc
import os
import pickle
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, NoReturn

from halide_backend.errors import HalideBackendError
from halide_backend.workers.task import Limits

#: What a server says when workers can be asked for.
READY = b"ready"
#: Exit status of a worker whose task met MemoryError, when there may be no memory to say so.
OUT_OF_MEMORY = errno.ENOMEM

#: Runs one task: its content, and a function that sends a report and restarts the task's clock.
Work = Callable[[Any, Callable[[Any], None]], Any]

_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2), PR_SET_PDEATHSIG


def serve(work: Work, warm_up: Callable[[], None] = lambda: None) -> NoReturn:
    """Fork workers until the parent closes the socket, then end this process.

    Args:
        work: what a worker does with a task. A HalideBackendError is raised in the parent, any other exception ends
            the worker.
        warm_up: called once, while the first tasks may wait already: what every fork would do again otherwise.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    control = socket.socket(fileno=os.dup(0))
    control.sendall(READY)
    warm_up()
    # What is alive now stays so: without this, every fork would copy it to mark it.
    gc.disable()
    gc.freeze()
    _Server(control, work).run()
    os._exit(0)


class _Server:
    def __init__(self, control: socket.socket, work: Work) -> None:
        self._control = control
        self._work = work
        self._lifelines: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._awake, alarm = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _noticed)
        self._selector.register(control, selectors.EVENT_READ)
        self._selector.register(self._awake, selectors.EVENT_READ)

    def run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fd == self._awake:
                    os.read(self._awake, 4096)
                    self._reap()
                elif key.fileobj is self._control:
                    if not self._fork():
                        for pid in self._lifelines:
                            _kill_group(pid)
                        return
                elif self._lifelines.get(key.data) is key.fileobj:  # and not reaped a moment ago
                    # The parent sends nothing here: it has closed its end.
                    self._selector.unregister(key.fileobj)
                    _kill_group(key.data)

    def _fork(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, 1, 3)
        if not message:
            return False
        conversation, lifeline = (socket.socket(fileno=descriptor) for descriptor in descriptors[:2])
        output, parent = descriptors[2], os.getpid()
        pid = os.fork()
        if pid == 0:
            others = (lifeline, self._control, *self._lifelines.values())
            _be_worker(conversation, output, others, parent, self._work)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        conversation.close()
        os.close(output)
        self._lifelines[pid] = lifeline
        self._selector.register(lifeline, selectors.EVENT_READ, pid)
        return True

    def _reap(self) -> None:
        # Looked at first and collected later: meanwhile nobody else gets its number.
        while ended := _ended():
            _kill_group(ended)
            _, status, usage = os.wait4(ended, 0)
            lifeline = self._lifelines.pop(ended)
            with contextlib.suppress(KeyError):
                self._selector.unregister(lifeline)
            with lifeline, contextlib.suppress(OSError):  # nobody may be waiting for it any more
                lifeline.sendall(f"{os.waitstatus_to_exitcode(status)} {usage.ru_maxrss // 1024}".encode())


def _noticed(number: int, frame: FrameType | None) -> None:
    """Let SIGCHLD interrupt the wait; the wake-up pipe does the rest."""


def _ended() -> int:
    try:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return 0
    return found.si_pid if found else 0


def _kill_group(pid: int) -> None:
    """Kill a worker and what it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _be_worker(
    conversation: socket.socket, output: int, others: Iterable[socket.socket], parent: int, work: Work
) -> NoReturn:
    """Run the tasks that come and end this process, whatever happens; `others` are the server's own sockets."""
    code = 1
    try:
        for other in others:
            other.close()
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() == parent:
            os.setpgid(0, 0)
            _become_quiet(output)
            gc.enable()
            _run_tasks(conversation, work)
            code = 0
    except MemoryError:
        code = OUT_OF_MEMORY
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _become_quiet(output: int) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    # Whoever is killed by the timer or by a crash says where it was.
    faulthandler.enable(2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    faulthandler.register(signal.SIGALRM, 2, chain=True)


def _run_tasks(conversation: socket.socket, work: Work) -> None:
    stream = conversation.makefile("rwb")

    def send(kind: str, value: Any) -> None:
        sys.stdout.flush()
        stream.write(pickle.dumps((kind, value)))
        stream.flush()

    while True:
        try:
            content, limits = pickle.load(stream)
        except EOFError:
            return
        _limit(limits)

        def report(message: Any, limits: Limits = limits) -> None:
            send("report", message)
            signal.setitimer(signal.ITIMER_REAL, limits.seconds)

        try:
            kind, value = "answer", work(content, report)
        except HalideBackendError as error:
            kind, value = "error", error
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(kind, value)


def _limit(limits: Limits) -> None:
    """Let the operating system enforce the limits, in Python and in C++ alike."""
    if limits.cores:
        os.sched_setaffinity(0, limits.cores)
    # Data, not address space: that counts the libraries and every reservation that is never touched.
    for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
        _, most = resource.getrlimit(kind)
        asked = limits.memory or most
        resource.setrlimit(kind, (asked if most == resource.RLIM_INFINITY else min(asked, most), most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)
