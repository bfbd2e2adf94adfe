"""Kernels compile in workers, so that none of them can take this process down (see `halide_backend.workers`)."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.target import Target
from halide_backend.errors import WorkerNotStarted
from halide_backend.workers.pool import Worker, Workers
from halide_backend.workers.server import Program
from halide_backend.workers.task import Limits, Task
from halide_backend.workers.threads import DaemonThreads


class WorkerPool:
    """Compiles kernels, each in a new worker process.

    Safe to use from several threads, and in a forked child. Nothing is started before the first request; all ends
    with this process.

    Attributes:
        threads: the threads that wait for the workers, one for each.
    """

    def __init__(self, workers: int, *, time_limit: float, memory_limit: int) -> None:
        """Prepare a pool.

        Args:
            workers: how many kernels compile at the same time, at least 1.
            time_limit: seconds that one kernel may take, from when its compilation begins.
            memory_limit: bytes of data that one kernel's compilation may hold at a time.
        """
        self.threads = DaemonThreads(max(1, workers), "halide compile")
        self.time_limit = time_limit
        self.memory_limit = memory_limit
        self._workers = Workers(_PROGRAM)
        self.start = self._workers.start
        self.close = self._workers.close

    def compile(
        self,
        text: str,
        target: Target,
        entry: str,
        name: str,
        time_limit: float | None = None,
        memory_limit: int | None = None,
        *,
        c_interface: bool = False,
    ) -> CompiledKernel:
        """Compile a kernel in a worker, in the calling thread's time.

        Args:
            text, target, entry, name, c_interface: as for `compiler.compile_kernel`.
            time_limit, memory_limit: as for the pool, whose limits hold where they are None.

        Raises:
            KernelTextError, HalideCompileError, LLVMCompileError: as `compiler.compile_kernel`.
            WorkerTimeout, WorkerCrashed: as `workers.pool.Worker.run`.
        """
        kernel: CompiledKernel
        kernel, messages = self._run(
            "compile", (text, target, entry, name, c_interface), name, time_limit, memory_limit
        )
        return replace(kernel, messages=messages)

    def assemble(
        self, ptx: str, capability: str, name: str, time_limit: float | None = None, memory_limit: int | None = None
    ) -> bytes:
        """Assemble PTX in a worker, in the calling thread's time.

        Args:
            ptx, capability, name: as for `ptxas.assemble`.
            time_limit, memory_limit: as for the pool, whose limits hold where they are None.

        Raises:
            HalideCompileError: as `ptxas.assemble`.
            WorkerTimeout, WorkerCrashed: as `workers.pool.Worker.run`.
        """
        image: bytes
        image, _ = self._run("assemble", (ptx, capability, name), name, time_limit, memory_limit)
        return image

    def loop_nest(self, text: str, name: str) -> str:
        """Halide's loop nest of a kernel, printed in a worker; arguments and errors as of `compiler.loop_nest`."""
        nest: str
        nest, _ = self._run("loop_nest", (text, name), name)
        return nest

    def assembly(self, text: str, target: Target, entry: str, name: str) -> str:
        """Assembly or PTX of a kernel, made in a worker; arguments and errors as of `compiler.assembly`."""
        code: str
        code, _ = self._run("assembly", (text, target, entry, name), name)
        return code

    def autoschedule(
        self,
        text: str,
        target: Target,
        scheduler: str,
        estimates: Mapping[str, Sequence[int]],
        parallelism: int,
        name: str,
        time_limit: float,
    ) -> str:
        """The schedule of one of Halide's autoschedulers, found in a worker within `time_limit` seconds; arguments and
        errors as of `compiler.autoschedule`, and as of `workers.pool.Worker.run`."""
        source: str
        source, _ = self._run("autoschedule", (text, target, scheduler, estimates, parallelism, name), name, time_limit)
        return source

    def _run(
        self,
        function: str,
        arguments: tuple[Any, ...],
        name: str,
        time_limit: float | None = None,
        memory_limit: int | None = None,
    ) -> tuple[Any, str]:
        limits = Limits(
            self.time_limit if time_limit is None else time_limit,
            self.memory_limit if memory_limit is None else memory_limit,
        )
        return Worker(self._workers).run(Task(f"kernel {name}", (function, arguments), limits))


def _command() -> list[str]:
    if not sys.executable:
        raise WorkerNotStarted("this process does not know its Python interpreter", where="sys.executable")
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


_PROGRAM = Program(
    "compile worker",
    _command,
    _environment,
    crash_cure="Report it with the kernel's text; meanwhile this kernel can be left to another backend.",
    timeout_cure="Raise the option compile_time_limit, or report it with the kernel's text.",
)
