"""A session on this machine: its cores are shared out among the kernels that are measured and the compile workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from halide_backend.build.target import Target
from halide_backend.schedule.device import Cpu, device_of
from halide_backend.sources import sources_digest
from halide_backend.tune.compilation import Compilation
from halide_backend.tune.measurement.measurer import Measurer
from halide_backend.tune.session import Log, Session
from halide_backend.tune.trial_log import Recorded
from halide_backend.tune.tuner import Conditions
from halide_backend.versions import SUPPORTED, installed_version

#: What of this package decides how fast a kernel is.
_SOURCES = ("build", "codegen", "kernel_library", "program", "schedule")


@contextmanager
def local_session(
    target: Target,
    log: Log,
    earlier: Recorded,
    *,
    threads: int = 0,
    cold: bool | None = None,
    compile_workers: int = 0,
) -> Iterator[Session]:
    """A session whose measuring process has started.

    Args:
        target: what kernels are compiled for.
        log: where trials go. earlier: trials of other sessions.
        threads: of kernels on a CPU, at most as many as this process has cores, and so many where it is 0.
        cold: as in `Contest`. compile_workers: 0 for one a core.

    Raises:
        WorkerNotStarted: there is no measuring process.
    """
    device = device_of(target)
    cores = sorted(os.sched_getaffinity(0))
    threads = min(threads or len(cores), len(cores)) if isinstance(device, Cpu) else 1
    # The first core is the one that most systems let serve interrupts.
    others, measuring = cores[:-threads], cores[-threads:]
    # Where few are left over, all cores compile some candidates, and then all rest but those that measure.
    overlap = len(others) > (threads if isinstance(device, Cpu) else 0)
    conditions = Conditions(device.name, threads, cold, device.l2_bytes, overlap=overlap, versions=_versions())
    with (
        _on_cores(others if overlap else cores),
        Compilation(target, workers=compile_workers) as compilation,
        Measurer(cores=measuring) as measurer,
    ):
        measurer.start()
        yield Session(device, measurer, compilation, conditions, log, earlier)


def target_of(device: str) -> Target:
    """What kernels on `device`, "cpu" or "cuda", of this machine are compiled for."""
    if device == "cpu":
        return Target.host()
    from halide_backend import pipeline

    return pipeline.current_target(device)


def _versions() -> dict[str, str]:
    found = {name: installed_version(name) or "" for name in SUPPORTED}
    return {**found, "sources": sources_digest(_SOURCES)[:16]}


@contextmanager
def _on_cores(cores: list[int]) -> Iterator[None]:
    """Keep what is started here on `cores`."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
