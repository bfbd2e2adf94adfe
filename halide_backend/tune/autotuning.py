"""What `mode="max-autotune"` does: kernels of a graph that have no schedule but the rules' are tuned before they are
compiled, and what was found is kept for all processes of this machine.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from halide_backend import pipeline
from halide_backend.errors import HalideBackendError, NothingToTune
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.tune import trial_log
from halide_backend.tune.keeping import Kept
from halide_backend.tune.local_session import local_session
from halide_backend.tune.session import Search
from halide_backend.tune.trial import Trial
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuned import Tuned
from halide_backend.tune.tuner import Tuner
from kernels_cache.errors import StorageTrouble
from kernels_cache.root import default_path

if TYPE_CHECKING:
    import torch

log = logging.getLogger("halide_backend")

#: The log of trials, in the directory of the cache.
LOG = "trials.jsonl"

_STRATEGY = "hill-climb"


def tune_graph(kernels: Sequence[tuple[str, LoopProgram]], device: torch.device) -> None:
    """Search for schedules of the programs of a graph for `config.tune_seconds`, and keep them.

    One process searches at a time: others wait for it as long as they would search, and find what it has found. What
    was searched for in vain is kept as well, so that nobody searches again. Trouble is a warning.

    Args:
        kernels: names and programs, one as often as it is launched.

    Raises:
        KeyboardInterrupt: as Ctrl-C does; the best so far is kept.
    """
    from halide_backend import config

    counts = Counter(program for _, program in kernels)
    found = {program: TunableKernel(name, program, str(device), counts[program]) for name, program in kernels}
    try:
        if not _waiting(found.values(), device):
            return
        path = Path(default_path(), LOG)
        with trial_log.TrialLog(path, patience=config.tune_seconds) as trials:
            # Those that another process has not tuned meanwhile.
            if waiting := _waiting(found.values(), device):
                _tune(waiting, device, trials, config.tune_seconds)
    except NothingToTune as reason:
        log.info("nothing is tuned: %s", reason)
    except (HalideBackendError, StorageTrouble, OSError) as trouble:
        log.warning("nothing is tuned, the rules choose: %s", trouble)


def _waiting(kernels: Iterable[TunableKernel], device: torch.device) -> list[TunableKernel]:
    """Those whose schedule is the rules', and was not searched for."""
    target = pipeline.current_target(device)
    return [kernel for kernel in kernels if pipeline.is_by_rules(kernel.program, kernel.name, target)]


def _tune(kernels: list[TunableKernel], device: torch.device, trials: trial_log.TrialLog, seconds: float) -> None:
    import torch

    ends_at = time.monotonic() + seconds
    target = pipeline.current_target(device)
    kept, kind = Kept(), device_of(target)
    with local_session(target, trials, trial_log.Recorded(), threads=torch.get_num_threads()) as session:
        search = Search(_STRATEGY, ends_at - time.monotonic())
        for found in session.run(kernels, search, _Watcher(), partial(kept.keep, kind)):
            # Whatever had its turn: more than the rules' kernel was measured, or there is nothing else.
            if found.confirmed is None and (found.complete or len(found.trials) > 1):
                kept.keep_rules(kind, found)
    if session.trouble is not None:
        log.warning("the search has ended early: %s", session.trouble)
    if session.interrupted:
        raise KeyboardInterrupt


class _Watcher:
    """See `session.Watcher`: the log has a line for each kernel."""

    def begins(self, tuners: Sequence[Tuner], ends_at: float) -> None:
        """Say how many there are."""
        log.info("%d kernels are tuned", len(tuners))

    def tried(self, tuner: Tuner, trial: Trial) -> None:
        """Nothing: there are many."""

    def tuned(self, found: Tuned) -> None:
        """Say what came of it."""
        log.info("%s: %d trials, %.3f times the rules' speed", found.kernel.name, len(found.trials), found.gain)

    def left_out(self, kernel: TunableKernel, reason: HalideBackendError) -> None:
        """Say why."""
        log.info("%s is not tuned: %s", kernel.name, reason)
