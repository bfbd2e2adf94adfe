"""The compile worker: a process with halide and LLVM loaded that forks once for every kernel.

Standard input is a Unix socket. Each message on it carries a connection of its own; a fresh
fork reads one request from that connection, compiles, answers and ends. A fork costs ~1 ms and
buys four things: Halide's process-wide name counters start from the same state for every kernel,
so equal texts give equal bytes; an abort, a kill, or a limit ends one kernel and nothing else;
nothing leaks from kernel to kernel; and kernels compile in parallel from a single start.

The worker ends when its parent does: the socket closes.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

from halide_backend.build import frames
from halide_backend.build.target import Target
from halide_backend.errors import HalideBackendError

#: What the worker says when it is ready for requests.
READY = b"ready"

_SET_PARENT_DEATH_SIGNAL = 1  # prctl(2), PR_SET_PDEATHSIG
_TAIL_BYTES = 4000
#: What kernel texts import, besides halide.
VOCABULARY = (
    "halide_backend.kernel_library.arguments",
    "halide_backend.kernel_library.memory",
    "halide_backend.kernel_library.operations",
    "halide_backend.kernel_library.cuda.memory",
    "halide_backend.kernel_library.cuda.reductions",
    "halide_backend.kernel_library.reductions",
    "halide_backend.schedule.apply",
)


@dataclass(frozen=True)
class _Child:
    """One kernel being compiled: where the answer goes, and the file with what it prints."""

    connection: socket.socket
    output: int


def main() -> None:
    """Serve requests until the parent closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    control = socket.socket(fileno=os.dup(0))
    _import_everything()
    with contextlib.suppress(ImportError):
        importlib.import_module("halide_backend.build.llvm.libdevice").leave_out_libdevice()
    control.sendall(READY)
    # The first requests wait meanwhile; without it, every fork would take that time again.
    with contextlib.suppress(HalideBackendError):
        _compile_once()
    # What is alive now stays so: without this, every fork would copy it to mark it.
    gc.disable()
    gc.freeze()
    _serve(control)


def _import_everything() -> None:
    for module in VOCABULARY:
        # What fails here fails again in the kernel's text, where it is reported.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    importlib.import_module("halide_backend.build.compiler")


def _compile_once() -> None:
    """Compile a kernel, always the same: Halide and LLVM make their tables on first use."""
    from halide_backend.build.compiler import compile_kernel

    compile_kernel(_FIRST, Target.host(), "first")


_FIRST = """
import halide as hl
from halide_backend.kernel_library import memory, operations as ops
from halide_backend.kernel_library.arguments import Input, Output

ARGUMENTS = (
    Input(name="a", dtype="float32", extent=4096),
    Output(name="b", dtype="float32", dims=((64, 1),), offset=0, extent=0),
)

def pipeline():
    i, j, r = hl.Var("i"), hl.Var("j"), hl.RDom([(0, 64)], "r")
    a = memory.source(ARGUMENTS[0])
    row = hl.Func("row")
    row[j, i] = ops.exp(a[64 * i + j])
    total = hl.Func("total")
    total[i] = hl.f32(0)
    total[i] += row[r, i]
    b = hl.Func("b")
    b[i] = ops.stored("float32", total[i])
    memory.target(b, [i], [(64, 1)])
    b.vectorize(i, 16)
    return [a], [b]
"""


def _serve(control: socket.socket) -> None:
    children: dict[int, _Child] = {}
    awake, alarm = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _noticed)
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(awake, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == awake:
                    os.read(awake, 4096)
                    _reap(children)
                elif not _accept(control, children):
                    return


def _noticed(number: int, frame: FrameType | None) -> None:
    """Let SIGCHLD interrupt the wait; the wake-up pipe does the rest."""


def _accept(control: socket.socket, children: dict[int, _Child]) -> bool:
    message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not message:
        return False
    for descriptor in descriptors:
        connection = socket.socket(fileno=descriptor)
        child = _Child(connection, os.memfd_create("output"))
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be_child(child, parent)
        children[pid] = child
    return True


def _reap(children: dict[int, _Child]) -> None:
    while children:
        pid, status, usage = os.wait4(-1, os.WNOHANG)
        if pid == 0:
            return
        child = children.pop(pid)
        if status:
            end = {
                "kind": "died",
                "code": os.waitstatus_to_exitcode(status),
                "peak_mb": usage.ru_maxrss // 1024,
                "output": _output(child),
            }
            with contextlib.suppress(OSError):  # nobody waits for it any more
                frames.send(child.connection, end)
        child.connection.close()
        os.close(child.output)


def _be_child(child: _Child, parent: int) -> None:
    """Compile one kernel and end this process, whatever happens."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:
            return
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(child.output, 1)
        os.dup2(child.output, 2)
        request, text = frames.receive(child.connection)
        answer, body = _answer(request, text.decode())
        sys.stdout.flush()
        frames.send(child.connection, {**answer, "output": _output(child)}, body)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _answer(request: dict[str, Any], text: str) -> tuple[dict[str, Any], bytes]:
    from halide_backend.build.compiler import compile_kernel

    # The kernel enforces both limits, in Python and in C++ alike. Data, not address space: that
    # counts the libraries and every reservation that is never touched.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, request["time_limit"])
    memory = request["memory_limit"]
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (memory, memory))  # the IR, and what is printed
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    target = Target.from_json(request["target"])
    try:
        kernel = compile_kernel(text, target, request["entry"], request["name"])
    except MemoryError:
        return {"kind": "out of memory"}, b""
    except HalideBackendError as error:
        return {
            "kind": "error",
            "error": type(error).__name__,
            "what": error.what,
            "where": error.where,
            "cure": error.cure,
        }, b""
    answer = {"kind": "kernel", "manifest": kernel.manifest, "seconds": kernel.seconds}
    return {**answer, "object_bytes": len(kernel.object)}, kernel.object + kernel.image


def _output(child: _Child) -> str:
    size = os.fstat(child.output).st_size
    start = max(0, size - _TAIL_BYTES)
    return os.pread(child.output, size - start, start).decode(errors="replace").strip()
