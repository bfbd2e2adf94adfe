"""What `halide-backend tune` does: kernels, a session, a table."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from halide_backend import terminal
from halide_backend.errors import DeviceError
from halide_backend.schedule.device import device_of
from halide_backend.tune import trial_log
from halide_backend.tune.capture import records_of
from halide_backend.tune.keeping import Kept
from halide_backend.tune.local_session import local_session, target_of
from halide_backend.tune.progress import HEADINGS, JUSTIFY, TableProgress, row
from halide_backend.tune.report import page
from halide_backend.tune.session import Search
from halide_backend.tune.space import described
from halide_backend.tune.tunable_kernel import TunableKernel, kernels_of, matching
from halide_backend.tune.tuned import Tuned, geometric_mean, overall_gain

#: Share of the cores that may be busy before measurements are doubtful.
_BUSY = 0.25


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line; `cold` as in `Contest`, `budget` in seconds, `threads` 0 for all cores.

    `ray` is the address of a cluster, "" for this machine; `equally` lets every kernel count as much as any other,
    however little time it takes.
    """

    source: str
    budget: float = 600.0
    kernels: str = "*"
    device: str = "cpu"
    strategy: str = "hill-climb"
    seed: int = 0
    threads: int = 0
    cold: bool | None = None
    output: str = "halide-trials.jsonl"
    resume: bool = False
    report: str = ""
    schedules: str = ""
    equally: bool = False
    ray: str = ""
    autoschedulers: tuple[str, ...] = ()


def show(request: Request) -> int:
    """Print the kernels."""
    found = matching(kernels_of(records_of(request.source, request.device), request.device), request.kernels)
    print(terminal.table(("kernel", "digest", "times"), [(k.name, k.digest[:16], str(k.count)) for k in found], "llr"))
    return 0


def tune(request: Request) -> int:
    """Tune the kernels of a program and print what came of it.

    Raises:
        NothingToTune, ScriptFailed, TrialLogError, MissingExtra: see `halide_backend.errors`.
        DeviceError: autoschedulers are asked for on a GPU.
    """
    if request.autoschedulers and request.device != "cpu":
        raise DeviceError(
            "the text of a kernel for a GPU is written for the threads that the rules chose, and Anderson2021, the "
            "autoscheduler of Halide's for GPUs, knows nothing of them",
            where="--autoschedulers",
            cure="leave the option out, or tune for a CPU",
        )
    kernels = matching(kernels_of(records_of(request.source, request.device), request.device), request.kernels)
    found = tuned(request, kernels)
    print(summary(found))
    return 0


def tuned(request: Request, kernels: list[TunableKernel]) -> list[Tuned]:
    """Tune `kernels`; what was found is kept, and written as a page if one is asked for.

    Raises:
        TrialLogError: the log cannot be read or written; a full disk ends the search, and what was found is kept.
    """
    device = device_of(target_of(request.device))
    path = Path(request.output)
    earlier = trial_log.read(path) if path.exists() else trial_log.Recorded()
    if earlier.torn:
        print(f"{path}: skipped lines that a crash has cut short: {earlier.torn}", file=sys.stderr)
    search = Search(
        request.strategy, request.budget, request.seed, request.equally, request.resume, request.autoschedulers
    )
    kept = Kept(request.schedules)
    if request.ray:
        found = _tuned_by_ray(request, kernels, path, earlier, search, kept)
        trouble = None
    else:
        _warn_if_busy()
        with (
            trial_log.TrialLog(path) as log,
            local_session(
                target_of(request.device), log, earlier, threads=request.threads, cold=request.cold
            ) as session,
            TableProgress(sys.stderr) as progress,
        ):
            found = session.run(kernels, search, progress, partial(kept.keep, device))
        trouble = session.trouble
    if request.report:
        Path(request.report).write_text(page(found, device))
    if trouble is not None:
        print(summary(found))
        raise trouble
    return found


def _tuned_by_ray(
    request: Request,
    kernels: list[TunableKernel],
    path: Path,
    earlier: trial_log.Recorded,
    search: Search,
    kept: Kept,
) -> list[Tuned]:
    from halide_backend.tune.ray_session import RaySession

    with (
        trial_log.TrialLog(path) as log,
        RaySession(request.ray, request.device, log, threads=request.threads, cold=request.cold) as session,
    ):
        return session.run(kernels, search, earlier, lambda line: print(line, file=sys.stderr), kept.keep)


def _warn_if_busy() -> None:
    cores = len(os.sched_getaffinity(0))
    if (busy := os.getloadavg()[0]) > _BUSY * cores:
        print(f"other programs keep {busy:.1f} cores busy: times will be theirs, too", file=sys.stderr)


def summary(found: list[Tuned]) -> str:
    """A table of results, and what they come to."""
    rows = [
        row(each.kernel.name, each.seconds, each.share, len(each.trials), each.gain, _remark(each)) for each in found
    ]
    better = sum(each.confirmed is not None for each in found)
    return "\n".join(
        (
            terminal.table(HEADINGS, rows, JUSTIFY),
            f"{better} of {len(found)} kernels are faster than with the rules: geometric mean of all "
            f"{geometric_mean(found):.3f}, of their time together {overall_gain(found):.3f}",
        )
    )


def _remark(found: Tuned) -> str:
    failed = ", ".join(f"{n} {outcome}" for outcome, n in sorted(found.outcomes.items()) if outcome != "measured")
    return "; ".join(filter(None, (described(found.settings), failed, "all tried" if found.complete else "")))
