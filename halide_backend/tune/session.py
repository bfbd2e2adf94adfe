"""A session: several kernels are tuned within a budget of time, each as long as its share of the time says."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from halide_backend.errors import HalideBackendError, NothingToTune, TrialLogError, Unsupported
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.tune.compilation import Compilation
from halide_backend.tune.measurement.measurer import Measurer
from halide_backend.tune.search.features import program_features
from halide_backend.tune.search.strategies import strategy
from halide_backend.tune.search.warm_start import Known
from halide_backend.tune.space import RULES, Space
from halide_backend.tune.trial import Trial
from halide_backend.tune.trial_log import Recorded
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuned import Tuned
from halide_backend.tune.tuner import Conditions, Tuner

#: Seconds that a kernel gets at least: some candidates are compiled and measured in that time.
_LEAST_S = 1.0

#: Part of a kernel's time that autoschedulers may take.
_AUTOSCHEDULED = 0.5


class Watcher(Protocol):
    """Who is told how far a session is."""

    def begins(self, tuners: Sequence[Tuner], ends_at: float) -> None:
        """The rules' kernels are timed; the search begins with the first, and ends at this time of `time.monotonic`."""

    def tried(self, tuner: Tuner, trial: Trial) -> None:
        """A trial has ended."""

    def tuned(self, found: Tuned) -> None:
        """A kernel is finished."""

    def left_out(self, kernel: TunableKernel, reason: HalideBackendError) -> None:
        """A kernel cannot be tuned."""


class Log(Protocol):
    """Where trials go: see `trial_log.TrialLog`."""

    def program(self, digest: str, program: LoopProgram, name: str) -> None:
        """Note what trials of `digest` are about."""

    def trial(self, trial: Trial) -> None:
        """Append a trial."""


@dataclass(frozen=True)
class Search:
    """How a session searches.

    Attributes:
        strategy: one of `strategies.STRATEGIES`. seed: of what it does by chance.
        seconds: the budget. equally: whether all kernels have equal shares of it.
        resume: whether earlier trials of the same kernels count.
        autoschedulers: of Halide's, by name, whose schedules are tried first.
    """

    strategy: str
    seconds: float
    seed: int = 0
    equally: bool = False
    resume: bool = False
    autoschedulers: tuple[str, ...] = ()


class Session:
    """Tunes kernels, those that take most time first."""

    def __init__(
        self,
        device: Device,
        measurer: Measurer,
        compilation: Compilation,
        conditions: Conditions,
        log: Log,
        earlier: Recorded,
    ) -> None:
        """Prepare; `earlier` are trials of other sessions, which warm starts and cost models learn from."""
        self._device = device
        self._measurer = measurer
        self._compilation = compilation
        self._conditions = conditions
        self._log = log
        self._earlier = earlier
        #: The disk was full: the search ends, and what it has found is kept.
        self.trouble: TrialLogError | None = None
        #: Somebody wants the search to end, and what it has found.
        self.ended = False
        #: Somebody pressed Ctrl-C: the search ends, and what it has found is kept.
        self.interrupted = False

    def with_log(self, log: Log, earlier: Recorded) -> Session:
        """A session in the same processes that writes to another log."""
        return Session(self._device, self._measurer, self._compilation, self._conditions, log, earlier)

    def run(
        self, kernels: Sequence[TunableKernel], search: Search, watcher: Watcher, keep: Callable[[Tuned], None]
    ) -> list[Tuned]:
        """Search until the budget is used up, every space is exhausted, or somebody interrupts.

        Args:
            keep: called with each kernel for which something better was found, as soon as it is finished.

        Raises:
            NothingToTune: no kernel can be tuned, or there is no time.
            MissingExtra: the strategy needs a package that is not installed.
        """
        if search.seconds <= 0:
            raise NothingToTune("there is no time to tune in", where="--budget", cure="give it a minute, --budget 1m")
        ends_at = time.monotonic() + search.seconds
        known = [Known(program_features(program), self._trials(d)) for d, program in self._earlier.programs.items()]
        tuners: list[Tuner] = []
        for kernel in kernels:
            if tuners and time.monotonic() >= ends_at:
                watcher.left_out(kernel, NothingToTune("the budget was used up before its turn"))
            elif (tuner := self._tuner(kernel, search, known, watcher)) is not None:
                tuners.append(tuner)
        if not tuners:
            raise NothingToTune("none of the kernels can be tuned", cure="the lines before this one say why")
        tuners.sort(key=_weight, reverse=True)
        whole = sum(map(_weight, tuners))
        watcher.begins(tuners, ends_at)
        found: list[Tuned] = []
        stopped = False
        for position, tuner in enumerate(tuners):
            ahead = sum(1.0 if search.equally else _weight(each) for each in tuners[position:])
            part = (1.0 if search.equally else _weight(tuner)) / ahead
            until = time.monotonic() + max(_LEAST_S, (ends_at - time.monotonic()) * part)
            complete = False
            try:
                complete = not stopped and self._search(tuner, search, min(until, ends_at), watcher)
            except KeyboardInterrupt:
                self.interrupted = stopped = True
            except TrialLogError as error:
                self.trouble, stopped = error, True
            found.append(_tuned(tuner, _weight(tuner) / whole, complete))
            if found[-1].confirmed is not None:
                keep(found[-1])
            watcher.tuned(found[-1])
        return found

    def _search(self, tuner: Tuner, search: Search, until: float, watcher: Watcher) -> bool:
        """Whether the strategy has nothing left to try."""
        if search.autoschedulers:
            seconds = max(_LEAST_S, _AUTOSCHEDULED * (until - time.monotonic()))
            for ended in tuner.autoschedule(search.autoschedulers, seconds):
                watcher.tried(tuner, ended)
        while time.monotonic() < until and not tuner.exhausted and not self.ended:
            trial = tuner.step()
            if trial is not None:
                watcher.tried(tuner, trial)
        return tuner.exhausted

    def _tuner(self, kernel: TunableKernel, search: Search, known: Sequence[Known], watcher: Watcher) -> Tuner | None:
        proposer = strategy(search.strategy, program_features(kernel.program), known, seed=search.seed)
        try:
            space = Space(kernel.program, self._device)
            self._log.program(kernel.digest, kernel.program, kernel.name)
            tuner = Tuner(kernel, space, proposer, self._measurer, self._compilation, self._conditions, self._log.trial)
        except (NothingToTune, Unsupported) as reason:
            watcher.left_out(kernel, reason)
            return None
        if search.resume:
            tuner.resume(self._trials(kernel.digest))
        return tuner

    def _trials(self, digest: str) -> list[Trial]:
        return self._earlier.of(digest, self._conditions.device, self._conditions.threads)


def _weight(tuner: Tuner) -> float:
    """Seconds that all kernels with the program take, as the rules schedule it."""
    return tuner.seconds * tuner.kernel.count


def _tuned(tuner: Tuner, share: float, complete: bool) -> Tuned:
    history = tuner.history
    confirmed = tuner.confirmed()
    settings = history.best if confirmed is not None else RULES
    return Tuned(tuner.kernel, settings, confirmed, tuner.seconds, share, history.trials, tuner.same, complete)
