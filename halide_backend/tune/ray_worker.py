"""What runs on each machine of a Ray cluster: a session of its own, which is given one kernel after another."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

from halide_backend.errors import HalideBackendError
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device, device_of
from halide_backend.tune.local_session import local_session, target_of
from halide_backend.tune.session import Search
from halide_backend.tune.trial import Trial
from halide_backend.tune.trial_log import Recorded
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuned import Tuned
from halide_backend.tune.tuner import Tuner

#: How far planning and compiling stand back for what is measured: nodes of one host may share its cores.
_NICENESS = 10


@dataclass(frozen=True)
class LeftOut:
    """Why a kernel cannot be tuned."""

    reason: HalideBackendError


#: What a worker says of a kernel: its trials, and last what came of it.
Message: TypeAlias = Trial | Tuned | LeftOut


class RayWorker:
    """An actor: it measures alone on its machine, and compiles on as many cores as Ray says that the machine has."""

    def __init__(self, device: str, threads: int, cold: bool | None, before: int, cores: int) -> None:
        """Start the measuring process; see `local_session`.

        Args:
            before: cores of the host that other nodes on it have. cores: those that this node has.
        """
        _keep_to(before, cores)
        target = target_of(device)
        self._device = device_of(target)
        self._log = _Messages()
        self._ended = ExitStack()
        self._session = self._ended.enter_context(
            local_session(target, self._log, Recorded(), threads=threads, cold=cold, compile_workers=cores)
        )

    def device(self) -> Device:
        """The class of its device."""
        return self._device

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()

    def tune(self, kernel: TunableKernel, search: Search, earlier: Recorded) -> Iterator[Message]:
        """Yield each trial of `kernel` as soon as it has ended, and what came of all; `earlier` are those of others."""
        messages = self._log.queue = SimpleQueue()
        session = self._session.with_log(self._log, earlier)
        self._session_of_kernel = session

        def run() -> None:
            # Of this thread and of the compile workers, which it starts; the measuring process was started before.
            os.nice(_NICENESS)
            try:
                (found,) = session.run([kernel], search, _Silent(), lambda found: None)
                messages.put(found)
            except HalideBackendError as reason:
                messages.put(LeftOut(reason))
            finally:
                messages.put(None)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while (message := messages.get()) is not None:
            yield message
        thread.join()

    def stop(self) -> None:
        """End the search for the kernel in hand; what was found is measured again and returned."""
        self._session_of_kernel.ended = True


def _keep_to(before: int, count: int) -> None:
    """Let this process, and what it starts, run on so many cores of its host, after the first ones: in turns where
    nodes have more of them than there are."""
    whole = sorted(os.sched_getaffinity(0))
    own = {whole[(before + k) % len(whole)] for k in range(min(max(count, 1), len(whole)))}
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), own)


class _Messages:
    """A log of trials, see `trial_log.TrialLog`, that is read at once."""

    def __init__(self) -> None:
        self.path = Path()
        self.queue: SimpleQueue[Message | None] = SimpleQueue()

    def program(self, digest: str, program: LoopProgram, name: str) -> None:
        """The head knows it."""

    def trial(self, trial: Trial) -> None:
        """Send it."""
        self.queue.put(trial)


class _Silent:
    """See `session.Watcher`: the head is told of trials."""

    def begins(self, tuners: object, ends_at: float) -> None:
        """Nothing."""

    def tried(self, tuner: Tuner, trial: Trial) -> None:
        """Nothing."""

    def tuned(self, found: Tuned) -> None:
        """Nothing."""

    def left_out(self, kernel: TunableKernel, reason: HalideBackendError) -> None:
        """Say it to the head, instead of that nothing can be tuned."""
        raise reason
