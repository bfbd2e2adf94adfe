"""The asking side of a measuring process: contests go in; samples, or how a candidate failed, come out."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from halide_backend.errors import (
    HalideBackendError,
    KernelRuntimeError,
    WorkerCrashed,
    WorkerOutOfMemory,
    WorkerTimeout,
)
from halide_backend.tune.measurement.contest import Contest, Measured
from halide_backend.tune.trial import Outcome
from halide_backend.tune.typical_sizes import operand_bytes
from halide_backend.workers.pool import Worker, Workers
from halide_backend.workers.server import Program
from halide_backend.workers.task import Limits, Task
from kernels_cache.errors import StorageTrouble
from kernels_cache.root import default_path

#: What the server runs.
COMMAND = (sys.executable, "-m", "halide_backend.tune.measurement.worker")

#: Seconds for the server to start: it imports torch.
_START_LIMIT = 300.0

#: Memory that a measuring process needs: torch and its heap, and several times the operands, of which there are copies.
_BASE_BYTES, _COPIES = 2 << 30, 8

#: Contests after which a process is replaced: kernels stay loaded.
_LIFETIME = 500


@dataclass(frozen=True)
class Failed:
    """Why there are no samples: the outcome of the trial, and what was wrong in words."""

    outcome: Outcome
    reason: str


class Measurer:
    """One process at a time that measures, pinned to `cores`; a process that dies is replaced."""

    def __init__(
        self, *, cores: Sequence[int] = (), time_limit: float = 10.0, command: Sequence[str] = COMMAND
    ) -> None:
        """Prepare; nothing is started before the first contest.

        Args:
            cores: logical cores that the process may use; all where empty.
            time_limit: seconds for each part of a contest: making operands, comparing results, one pair of samples.
            command: what the server runs.
        """
        self._cores = tuple(cores)
        self._time_limit = time_limit
        self._workers = Workers(Program("measuring process", lambda: command, lambda: os.environ, _START_LIMIT))
        self._worker = Worker(self._workers, _LIFETIME)

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and its server."""
        self._worker.close()
        self._workers.close()

    def start(self) -> None:
        """Start the server now: it imports torch.

        Raises:
            WorkerNotStarted: it does not start.
        """
        self._workers.start()

    def renew(self) -> None:
        """Let the next contest have a process of its own."""
        self._worker.close()

    def hold(self, contest: Contest, name: str) -> Measured | Failed:
        """Run a contest, whatever its candidate does.

        Raises:
            WorkerNotStarted: there is no measuring process.
        """
        with _alone(contest.device):
            return self._hold(contest, name)

    def _hold(self, contest: Contest, name: str) -> Measured | Failed:
        memory = 0 if contest.device != "cpu" else _BASE_BYTES + _COPIES * operand_bytes(contest.program)
        limits = Limits(self._time_limit, memory, self._cores)
        try:
            measured: Measured
            measured, _ = self._worker.run(Task(f"kernel {name}", contest, limits))
            return measured
        except WorkerTimeout as error:
            return Failed(Outcome.TIMEOUT, _first_line(error))
        except WorkerOutOfMemory as error:
            return Failed(Outcome.MEMORY, _first_line(error))
        except WorkerCrashed as error:
            return Failed(Outcome.CRASHED, _first_line(error))
        except KernelRuntimeError as error:
            out_of_memory = "not enough memory" in error.what
            return Failed(Outcome.MEMORY if out_of_memory else Outcome.CRASHED, _first_line(error))
        except HalideBackendError as error:
            return Failed(Outcome.CRASHED, f"{type(error).__name__}: {_first_line(error)}")


@contextmanager
def _alone(device: str) -> Iterator[None]:
    """Whoever measures on this machine's processor, or on the same GPUs, waits for whoever does already."""
    kind = "cpu" if device == "cpu" else f"cuda{os.environ.get('CUDA_VISIBLE_DEVICES', '')}"
    with ExitStack() as held:
        with suppress(StorageTrouble, OSError):
            folder = Path(default_path())
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Several machines may have one home.
            path = folder / f"measuring-{socket.gethostname()}-{kind}.lock"
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            held.callback(os.close, lock)
            # The system wakes the next one at once. To look every 50 ms takes as long as most contests, and whoever
            # looks more often disturbs them.
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _first_line(error: HalideBackendError) -> str:
    return error.what.partition("\n")[0]
