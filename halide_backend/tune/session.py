"""A session: several kernels are tuned within a budget of time, in turns that go to whichever promises most."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from halide_backend.errors import HalideBackendError, NothingToTune, TrialLogError, Unsupported
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.tune.compilation import Compilation
from halide_backend.tune.measurement.measurer import Measurer
from halide_backend.tune.promise import Floors, promise
from halide_backend.tune.search.features import program_features
from halide_backend.tune.search.forest import Forest
from halide_backend.tune.search.strategies import strategy
from halide_backend.tune.search.warm_start import Known
from halide_backend.tune.space import RULES, Settings, Space
from halide_backend.tune.trial import Trial
from halide_backend.tune.trial_log import Recorded
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuned import Tuned
from halide_backend.tune.tuner import Conditions, Tuner

#: Trials of a turn: making the operands of another kernel, and confirming what was found, takes as long as a few.
_TURN = 12

#: Seconds that autoschedulers get at least, and the part of a kernel's equal share of the time that they may take.
_LEAST_S, _AUTOSCHEDULED = 1.0, 0.5

#: Kernels whose rules' candidates are compiled together before they are timed.
_TOGETHER = 8


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
        seconds: the budget. equally: whether a kernel counts as much as any other, however little time it takes.
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
        # What every kernel's trials say, those of this session as soon as they have ended.
        known = [Known(program_features(program), self._trials(d)) for d, program in self._earlier.programs.items()]
        tuners = self._tuners(kernels, search, known, watcher, ends_at)
        if not tuners:
            raise NothingToTune("none of the kernels can be tuned", cure="the lines before this one say why")
        tuners.sort(key=_weight, reverse=True)
        watcher.begins(tuners, ends_at)
        whole = sum(map(_weight, tuners))
        floors = Floors(self._device, self._compilation.target, self._conditions.threads)
        found: dict[str, Tuned] = {}
        #: The settings that were last measured again, and what came of it.
        measured: dict[str, tuple[Settings, Tuned]] = {}

        def finish(tuner: Tuner) -> None:
            """Measure again what was found since it was last measured again."""
            last = measured.get(tuner.kernel.digest)
            if last is not None and last[0] == tuner.history.best:
                ended = replace(last[1], complete=tuner.exhausted)
            else:
                ended = _tuned(tuner, _weight(tuner) / whole, tuner.exhausted)
                if ended.confirmed is not None:
                    keep(ended)
                elif last is not None:
                    # What was kept before has been right.
                    ended = replace(last[1], complete=tuner.exhausted)
                measured[tuner.kernel.digest] = tuner.history.best, ended
            found[tuner.kernel.digest] = ended
            watcher.tuned(ended)

        tuner: Tuner | None = None
        try:
            while time.monotonic() < ends_at and not self.ended:
                waiting = [each for each in tuners if not each.exhausted]
                if not waiting:
                    break
                following = max(waiting, key=lambda each: promise(each, floors, equally=search.equally))
                if tuner is not None and following is not tuner:
                    finish(tuner)
                tuner = following
                self._turn(tuner, search, ends_at, len(waiting), watcher)
        except KeyboardInterrupt:
            self.interrupted = True
        except TrialLogError as error:
            self.trouble = error
        for each in tuners:
            if each is tuner or each.kernel.digest not in found:
                finish(each)
        return [found[each.kernel.digest] for each in tuners]

    def _turn(self, tuner: Tuner, search: Search, ends_at: float, waiting: int, watcher: Watcher) -> None:
        """Some trials of one kernel; the first ones are those of the autoschedulers."""
        left = ends_at - time.monotonic()
        if search.autoschedulers and tuner.untouched:
            seconds = max(_LEAST_S, _AUTOSCHEDULED * left / waiting)
            for ended in tuner.autoschedule(search.autoschedulers, seconds):
                watcher.tried(tuner, ended)
        for _ in range(_TURN):
            if time.monotonic() >= ends_at or tuner.exhausted or self.ended:
                break
            trial = tuner.step()
            if trial is None:
                break
            watcher.tried(tuner, trial)

    def _tuners(
        self, kernels: Sequence[TunableKernel], search: Search, known: list[Known], watcher: Watcher, ends_at: float
    ) -> list[Tuner]:
        """Of those that can be tuned; `known` gets their trials, too."""
        tuners: list[Tuner] = []
        forest = Forest(known, seed=search.seed)
        for begin in range(0, len(kernels), _TOGETHER):
            together = kernels[begin : begin + _TOGETHER]
            if tuners and time.monotonic() >= ends_at:
                for kernel in together:
                    watcher.left_out(kernel, NothingToTune("the budget was used up before its turn"))
                continue
            spaces = [self._space(kernel, watcher) for kernel in together]
            texts = [(space.kernel(RULES).text, kernel.name) for kernel, space in zip(together, spaces) if space]
            candidates = [self._compilation.ahead(*each) for each in texts]
            if not self._conditions.overlap:
                for candidate in candidates:
                    candidate.wait()
            for kernel, space in zip(together, spaces):
                if space is None:
                    continue
                if tuners and time.monotonic() >= ends_at:
                    watcher.left_out(kernel, NothingToTune("the budget was used up before its turn"))
                elif (tuner := self._tuner(kernel, space, search, known, forest, watcher)) is not None:
                    tuners.append(tuner)
                    known.append(Known(program_features(kernel.program), tuner.history.trials))
        return tuners

    def _space(self, kernel: TunableKernel, watcher: Watcher) -> Space | None:
        try:
            return Space(kernel.program, self._device, threads=self._conditions.threads)
        except (NothingToTune, Unsupported) as reason:
            watcher.left_out(kernel, reason)
            return None

    def _tuner(
        self,
        kernel: TunableKernel,
        space: Space,
        search: Search,
        known: Sequence[Known],
        forest: Forest,
        watcher: Watcher,
    ) -> Tuner | None:
        proposer = strategy(search.strategy, program_features(kernel.program), known, seed=search.seed, forest=forest)
        try:
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
