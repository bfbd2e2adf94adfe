"""A session on many machines: Ray starts a worker on each, the head hands out kernels and keeps what comes back.

Machines of one class of devices share the kernels; each class tunes all of them. A worker that is lost takes its
running trial with it: another one goes on with the kernel from the trials that have come back.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any

from halide_backend.errors import MissingExtra, NothingToTune
from halide_backend.schedule.device import Device
from halide_backend.tune.ray_worker import LeftOut, Message, RayWorker
from halide_backend.tune.session import Search
from halide_backend.tune.trial import Trial
from halide_backend.tune.trial_log import Recorded, TrialLog
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuned import Tuned

#: Workers that are started again on a machine whose worker was lost, and losses after which a kernel is given up: it
#: may be what kills them.
_STARTS, _LOSSES = 3, 3

#: Seconds for a machine to start a worker, which imports torch, and to end a search that was interrupted.
_START_S, _STOP_S = 300.0, 60.0

#: Seconds for the head of a cluster to answer.
_REACH_S = 10.0


def _reach(address: str) -> None:
    """Make sure that somebody listens at `address`, "host:port" or "ray://host:port": Ray asks again for minutes.

    Raises:
        OSError: nobody does. ValueError: the port is no number from 1 to 65535.
    """
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if not colon:
        return  # "auto" and "local"
    if not (port.isdecimal() and 0 < int(port) < 1 << 16):
        raise ValueError(f"{port!r} is no port")
    socket.create_connection((host.strip("[]"), int(port)), _REACH_S).close()


@dataclass
class _Job:
    """A kernel that waits for a machine of a class, or is with one."""

    kernel: TunableKernel
    seconds: float
    trials: list[Trial] = field(default_factory=list)
    losses: int = 0


@dataclass(frozen=True)
class _Machine:
    """A node of the cluster, by Ray's name of it: it has `cores` of its host, after those of `before` other nodes."""

    node: str
    cores: int
    before: int = 0


class RaySession:
    """Tunes kernels on all machines of a cluster.

    Attributes:
        lost: how many workers were lost. interrupted: whether Ctrl-C ended the search.
    """

    def __init__(self, address: str, device: str, log: TrialLog, *, threads: int = 0, cold: bool | None = None) -> None:
        """Join the cluster at `address`; "local" begins one on this machine.

        Raises:
            MissingExtra: ray is not installed. NothingToTune: there is no cluster, or no machine with such a device.
        """
        try:
            import ray
        except ImportError as error:
            raise MissingExtra(
                f"ray cannot be imported: {error}", where="--ray", cure="pip install 'halide-backend[ray]'"
            ) from error
        self._ray: Any = ray
        try:
            _reach(address)
            ray.init(address, ignore_reinit_error=True, log_to_driver=False, logging_level="ERROR")
        except (OSError, ValueError, RuntimeError) as error:
            raise NothingToTune(
                f"no cluster: {error}", where=f"--ray {address}", cure="begin one with `ray start --head`"
            ) from error
        self._arguments = (device, threads, cold)
        self._log = log
        self._machines = self._nodes(device)
        if not self._machines:
            raise NothingToTune(f"no machine of the cluster has a device {device}", where=f"--ray {address}")
        self._said: SimpleQueue[tuple[Device, _Job, Message | None]] = SimpleQueue()
        #: Kernels that wait for a machine of a class, and how many are with one: they may come back.
        self._waiting: dict[str, deque[_Job]] = {}
        self._given: Counter[str] = Counter()
        self._changed = threading.Condition()
        self._workers: dict[str, Any] = {}
        self.lost = 0
        self.interrupted = False

    def __enter__(self) -> RaySession:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers.values():
            self._ray.kill(worker)

    def run(
        self,
        kernels: Sequence[TunableKernel],
        search: Search,
        earlier: Recorded,
        say: Callable[[str], None],
        keep: Callable[[Device, Tuned], None],
    ) -> list[Tuned]:
        """Search until the budget is used up; see `Session.run`.

        Args:
            earlier: trials of other sessions. say: called with each line that a person may want to read.

        Raises:
            NothingToTune: there is no time, or no kernel can be tuned.
            TrialLogError: the log cannot be written.
        """
        if search.seconds <= 0:
            raise NothingToTune("there is no time to tune in", where="--budget", cure="give it a minute, --budget 1m")
        for kernel in kernels:
            self._log.program(kernel.digest, kernel.program, kernel.name)
        devices = self._started()
        ends_at = time.monotonic() + search.seconds
        for device in set(devices.values()):
            crew = sum(each == device for each in devices.values())
            share = search.seconds * min(1.0, crew / len(kernels))
            self._waiting[device.name] = deque(_Job(kernel, share) for kernel in kernels)
            say(f"{device.name}: {crew} machines, {len(kernels)} kernels of {share:.0f} s")
        threads = [
            threading.Thread(target=self._serve, args=(machine, devices[machine.node], search, earlier, ends_at))
            for machine in self._machines
            if machine.node in devices
        ]
        for thread in threads:
            thread.daemon = True
            thread.start()
        found: list[Tuned] = []
        until = float("inf")
        while any(thread.is_alive() for thread in threads) or not self._said.empty():
            try:
                self._hear(found, say, keep)
            except KeyboardInterrupt:
                self.interrupted, until = True, time.monotonic() + _STOP_S
                self._stop()
            if time.monotonic() > until:
                break
        if not found:
            raise NothingToTune("none of the kernels was tuned", cure="the lines before this one say why")
        whole = sum(each.seconds * each.kernel.count for each in found) or 1.0
        return [replace(each, share=each.seconds * each.kernel.count / whole) for each in found]

    def _hear(self, found: list[Tuned], say: Callable[[str], None], keep: Callable[[Device, Tuned], None]) -> None:
        """Take one message of a worker."""
        try:
            device, job, message = self._said.get(timeout=0.2)
        except Empty:
            return
        name = job.kernel.name
        if isinstance(message, Trial):
            self._log.trial(message)
        elif isinstance(message, Tuned):
            found.append(message)
            if message.confirmed is not None:
                keep(device, message)
            say(f"{name} on {device.name}: {len(message.trials)} trials, {message.gain:.3f} of the rules' speed")
        elif isinstance(message, LeftOut):
            say(f"{name} on {device.name} is left out: {message.reason.what}")
        else:
            say(f"{name} on {device.name}: a worker was lost after {len(job.trials)} trials")

    def _started(self) -> dict[str, Device]:
        """The class of devices of each machine on which a worker has started."""
        for machine in self._machines:
            self._workers[machine.node] = self._start(machine)
        asked = {name: worker.device.remote() for name, worker in self._workers.items()}
        devices: dict[str, Device] = {}
        reason = ""
        for name, answer in asked.items():
            try:
                devices[name] = self._ray.get(answer, timeout=_START_S)
            except self._ray.exceptions.RayError as error:  # noqa: PERF203
                reason = str(error).strip().splitlines()[-1]
        if not devices:
            raise NothingToTune(f"no worker has started: {reason}", where="--ray")
        return devices

    def _start(self, machine: _Machine) -> Any:
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(machine.node, soft=False)
        gpus = 0 if self._arguments[0] == "cpu" else 1
        options = {"num_cpus": 0, "num_gpus": gpus, "max_concurrency": 2, "scheduling_strategy": strategy}
        return self._ray.remote(RayWorker).options(**options).remote(*self._arguments, machine.before, machine.cores)

    def _serve(self, machine: _Machine, device: Device, search: Search, earlier: Recorded, ends_at: float) -> None:
        """Give kernels to the worker of a machine until there are none; in a thread of its own."""
        starts = 0
        while (job := self._next(device, ends_at)) is not None:
            left = min(job.seconds, ends_at - time.monotonic())
            begin = time.monotonic()
            known = replace(earlier, trials=[*earlier.trials, *job.trials])
            given = replace(search, seconds=left, resume=search.resume or bool(job.trials))
            try:
                worker = self._workers[machine.node]
                for answer in worker.tune.options(num_returns="streaming").remote(job.kernel, given, known):
                    message = self._ray.get(answer)
                    if isinstance(message, Trial):
                        job.trials.append(message)
                    self._said.put((device, job, message))
            except self._ray.exceptions.RayError:
                self.lost += 1
                job.losses += 1
                job.seconds = left - (time.monotonic() - begin)
                self._said.put((device, job, None))
                self._done(device, job if job.losses < _LOSSES else None)
                starts += 1
                if starts > _STARTS or not self._is_alive(machine):
                    return
                self._workers[machine.node] = self._start(machine)
            else:
                self._done(device)

    def _next(self, device: Device, ends_at: float) -> _Job | None:
        """The next kernel; None if there is no time, or none that waits or may be lost by another machine."""
        waiting = self._waiting[device.name]
        with self._changed:
            self._changed.wait_for(lambda: waiting or not self._given[device.name] or self.interrupted)
            if not waiting or self.interrupted or time.monotonic() >= ends_at:
                return None
            self._given[device.name] += 1
            return waiting.popleft()

    def _done(self, device: Device, again: _Job | None = None) -> None:
        """A machine has done with a kernel, or has lost it, and somebody has to go on."""
        with self._changed:
            self._given[device.name] -= 1
            if again is not None:
                self._waiting[device.name].appendleft(again)
            self._changed.notify_all()

    def _stop(self) -> None:
        with self._changed:
            self._changed.notify_all()
        for worker in self._workers.values():
            worker.stop.remote()

    def _is_alive(self, machine: _Machine) -> bool:
        return any(node["NodeID"] == machine.node and node["Alive"] for node in self._ray.nodes())

    def _nodes(self, device: str) -> list[_Machine]:
        """The machines that have such a device; nodes on one host share out its cores."""
        wanted = "CPU" if device == "cpu" else "GPU"
        found: list[_Machine] = []
        taken: Counter[str] = Counter()
        for node in self._ray.nodes():
            if node["Alive"] and node["Resources"].get(wanted):
                host, cores = node["NodeManagerHostname"], int(node["Resources"].get("CPU", 1))
                found.append(_Machine(node["NodeID"], cores, taken[host]))
                taken[host] += cores
        return found
