"""Compile requests to the worker process: started when first needed, replaced when it dies.

One worker process forks for each kernel (see `worker`), so "workers" here is how many kernels
compile at the same time, and as many threads of this process wait for them.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from concurrent.futures import Future

from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.process import Request, WorkerGone, WorkerProcess
from halide_backend.build.target import Target
from halide_backend.build.threads import DaemonThreads


class WorkerPool:
    """Compiles kernels outside this process, so that none of them can take it down.

    Safe to use from several threads. A forked child gets a worker of its own when it compiles.
    Nothing is started before the first request; the worker ends with this process, however that
    ends.

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
        self._closed = False
        self._lock = threading.Lock()
        self._worker: WorkerProcess | None = None
        itself = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _if_alive(itself, WorkerPool._forget))
        atexit.register(_if_alive, itself, WorkerPool.close)

    def submit(
        self,
        text: str,
        target: Target,
        entry: str,
        name: str,
        time_limit: float | None = None,
        memory_limit: int | None = None,
    ) -> Future[CompiledKernel]:
        """Ask for a kernel and return at once; see `compile`."""
        return self.threads.submit(lambda: self.compile(text, target, entry, name, time_limit, memory_limit))

    def compile(
        self,
        text: str,
        target: Target,
        entry: str,
        name: str,
        time_limit: float | None = None,
        memory_limit: int | None = None,
    ) -> CompiledKernel:
        """Compile a kernel in a worker, in the calling thread's time.

        Args:
            text, target, entry, name: as for `compiler.compile_kernel`.
            time_limit, memory_limit: as for the pool, whose limits hold where they are None.

        Raises:
            KernelTextError, HalideCompileError, LLVMCompileError: as `compiler.compile_kernel`.
            WorkerTimeout: its time is over.
            WorkerCrashed: its process was killed, aborted, or needed more memory than allowed;
                or no worker process can be started; or the pool was closed.
        """
        request = Request(
            text,
            target,
            entry,
            name,
            self.time_limit if time_limit is None else time_limit,
            self.memory_limit if memory_limit is None else memory_limit,
        )
        try:
            return self._attempt(request)
        except WorkerGone:
            # The worker runs no kernel's text itself, so its death says nothing about this
            # kernel: once more, and not silently.
            if not self._closed:
                warnings.warn(
                    "the halide_backend compile worker died; another one was started",
                    RuntimeWarning,
                    stacklevel=2,
                )
        try:
            return self._attempt(request)
        except WorkerGone as error:
            raise request.crashed(str(error)) from None

    def start(self) -> None:
        """Start the worker process now, so that the first kernel need not wait for it.

        A pool that was closed stays so: the thread that calls this may be late.

        Raises:
            WorkerCrashed: it does not start.
        """
        if not self._closed:
            self._current()

    @property
    def process_id(self) -> int | None:
        """Process id of the worker, None while there is none."""
        worker = self._worker
        return None if worker is None else worker.id

    def close(self) -> None:
        """End the worker. What is still to be compiled fails with WorkerCrashed."""
        self._closed = True
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()

    def _attempt(self, request: Request) -> CompiledKernel:
        worker = self._current(request)
        try:
            return worker.compile(request)
        except WorkerGone:
            self._discard(worker)
            raise
        except TimeoutError:
            self._discard(worker)
            raise request.late() from None

    def _current(self, request: Request | None = None) -> WorkerProcess:
        with self._lock:
            if self._closed and request is not None:
                raise request.crashed("the compile workers of this process are closed")
            if self._worker is None:
                self._worker = WorkerProcess()
            return self._worker

    def _discard(self, worker: WorkerProcess) -> None:
        with self._lock:
            if self._worker is worker:
                self._worker = None
        worker.kill()

    def _forget(self) -> None:
        """In a forked child: the worker is the parent's, and so is whoever held the lock."""
        worker, self._worker = self._worker, None
        self._lock = threading.Lock()
        if worker is not None:
            worker.disown()


def _if_alive(pool: weakref.ref[WorkerPool], method: Callable[[WorkerPool], None]) -> None:
    if (alive := pool()) is not None:
        method(alive)
