"""Tunes one kernel: proposals are compiled ahead, measured one by one against the best so far, and recorded."""

from __future__ import annotations

import datetime
import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from halide_backend.codegen.planned_kernel import PlannedKernel
from halide_backend.errors import NothingToTune
from halide_backend.tune.autoscheduling import asked, estimates, made, variants
from halide_backend.tune.compilation import Candidate, Compilation, text_key
from halide_backend.tune.measurement.contest import Contest, Contestant, Measured
from halide_backend.tune.measurement.measurer import Failed, Measurer
from halide_backend.tune.measurement.sequential_test import Interval
from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import Proposer
from halide_backend.tune.space import RULES, Settings, Space, is_whole, repaired
from halide_backend.tune.trial import Outcome, Trial
from halide_backend.tune.tunable_kernel import TunableKernel

#: Candidates that are compiled, at least, before they are measured one by one, where none is compiled meanwhile.
_BATCH = 4

#: Seconds that a candidate's compilation may take at least, and how many times the rules' one: wide vectors of a
#: stencil took a minute, while others waited for them.
_COMPILED_S, _TIMES_LONGER = 4.0, 10.0

#: Proposals in a row that may be kernels which were measured before a step ends without a trial.
_PROPOSED = 32


@dataclass(frozen=True)
class Conditions:
    """Under which all trials of a session are made.

    Attributes:
        device: name of the device class. threads: of kernels on a CPU.
        cold: as in `Contest`. l2_bytes: the cache beyond which operands count as large.
        overlap: whether candidates compile while others are measured, because these have cores to themselves.
        versions: of what decides how fast kernels are.
    """

    device: str
    threads: int = 1
    cold: bool | None = None
    l2_bytes: int = 1 << 20
    overlap: bool = False
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _Pending:
    settings: Settings
    kernel: PlannedKernel
    candidate: Candidate


class Tuner:
    """One kernel.

    Attributes:
        history: its trials. seconds: one call of the rules' kernel, as measured first.
        same: settings whose kernel has the text of another one, which were not measured for that reason.
    """

    def __init__(
        self,
        kernel: TunableKernel,
        space: Space,
        proposer: Proposer,
        measurer: Measurer,
        compilation: Compilation,
        conditions: Conditions,
        record: Callable[[Trial], None] = lambda trial: None,
    ) -> None:
        """Compile and time the rules' kernel.

        Args:
            record: called with every trial as soon as it has ended.

        Raises:
            NothingToTune: the rules' kernel cannot be compiled or run on made-up operands.
        """
        self.kernel = kernel
        self.space = space
        self.history = History(space)
        self.same = 0
        self._given_up = False
        self._proposer = proposer
        self._measurer = measurer
        self._compilation = compilation
        self._conditions = conditions
        self._record = record
        self._pending: deque[_Pending] = deque()
        #: What is tried before anything that the strategy proposes.
        self._first: deque[Settings] = deque()
        self._refused: set[Settings] = set()
        #: Trials by the keys of their texts, and settings that have the text of a trial, of which nobody has been told.
        self._ended: dict[str, Trial] = {}
        self._alike: dict[str, list[Settings]] = {}
        rules = space.kernel(RULES)
        self._rules, compile_seconds = self._compiled(rules)
        self._incumbent = self._rules
        self._limit = max(_COMPILED_S, _TIMES_LONGER * compile_seconds)
        self._texts = {self._rules.key}
        measured = self._against_itself()
        self.seconds = statistics.median(measured.incumbent)
        interval = Interval.of(measured.ratios)
        baseline = replace(
            self._made(RULES, Outcome.MEASURED, "", rules),
            samples=measured.samples,
            incumbent=measured.incumbent,
            gain=1.0,
            low=interval.low,
            high=_finite(interval.high),
            cold=measured.cold,
            compile_seconds=round(compile_seconds, 4),
        )
        self._end(baseline)
        self._ended[self._rules.key] = baseline

    def autoschedule(self, schedulers: Sequence[str], seconds: float) -> list[Trial]:
        """Let autoschedulers of Halide's schedule the kernel, all together for so many seconds at most.

        What they make is tried next, and what wins of it with other factors after that. Returns the trials of those
        that made nothing.
        """
        rules = self.space.kernel(RULES)
        new = [scheduler for scheduler in schedulers if self.history.is_new(asked(scheduler))]
        answers = {
            scheduler: self._compilation.autoschedule(
                scheduler, rules.text, estimates(rules), self._conditions.threads, self.kernel.name, seconds / len(new)
            )
            for scheduler in new
        }
        ended = []
        for scheduler, answer in answers.items():
            found = made(scheduler, answer, rules)
            if isinstance(found, Failed):
                ended.append(self._made(asked(scheduler), found.outcome, found.reason))
                self._end(ended[-1])
            else:
                self._first.append(found)
        return ended

    def step(self) -> Trial | None:
        """One more trial; None if there was none, because the proposals were kernels that had been measured, or the
        strategy has no more."""
        self._fill()
        if not self._pending:
            return None
        pending = self._pending.popleft()
        if not self._conditions.overlap:
            for each in (pending, *self._pending):
                each.candidate.wait()
        trial = self._trial(pending)
        self._end(trial)
        self._ended[pending.candidate.key] = trial
        self._tell_alike(pending.candidate.key)
        return trial

    @property
    def untouched(self) -> bool:
        """Whether nothing but the rules' kernel was measured."""
        return len(self.history.trials) == 1

    @property
    def exhausted(self) -> bool:
        """Whether the strategy has no more settings to try, and all trials have ended."""
        return self._given_up and not self._pending

    def resume(self, trials: list[Trial]) -> None:
        """Go on from trials of an earlier run, the best of which has to win again."""
        best: Trial | None = None
        for trial in trials:
            self._proposer.told(trial)
            if trial.settings == RULES or not self.history.is_new(trial.settings):
                continue
            best = trial if trial.won else best
            self.history.add(replace(trial, won=False))
        again = self._planned(best.settings) if best is not None and self._is_possible(best.settings) else None
        for trial in trials:
            # What has the text of an earlier trial is not measured again.
            if self._is_possible(trial.settings):
                key = text_key(self.space.kernel(trial.settings).text)
                self._texts.add(key)
                self._ended[key] = trial
        if again is not None:
            self._end(self._trial(again))

    def confirmed(self) -> Interval | None:
        """The rules' time over the incumbent's, measured completely in a process of its own; None if it fails there or
        the incumbent is the rules' kernel."""
        if self.history.best == RULES:
            return None
        self._measurer.renew()
        contest = self._contest(self._incumbent, incumbent=self._rules, complete=True)
        measured = self._measurer.hold(contest, self.kernel.name)
        self._measurer.renew()
        if isinstance(measured, Failed) or measured.wrong or not measured.better:
            return None
        return Interval.of(measured.ratios)

    def _fill(self) -> None:
        wanted = self._compilation.at_once
        if not self._conditions.overlap:
            # All cores have something to compile until all of these are compiled.
            wanted = 0 if self._pending else max(wanted, _BATCH)
        for _ in range(_PROPOSED):
            if len(self._pending) >= wanted:
                return
            settings = self._next()
            self._note_refused()
            if settings is None:
                self._given_up = True
                return
            pending = self._planned(settings)
            if pending is not None:
                self._pending.append(pending)

    def _next(self) -> Settings | None:
        while self._first:
            settings = self._first.popleft()
            if self.history.is_new(settings) and self.space.is_possible(settings):
                return settings
        return self._proposer.propose(self.history)

    def _is_possible(self, settings: Settings) -> bool:
        """Whether rules of this version still make a kernel of them."""
        if is_whole(settings):
            return self.space.is_possible(settings)
        return settings == repaired(self.space, settings)

    def _planned(self, settings: Settings) -> _Pending | None:
        """A candidate that is compiled from now on; None if it was measured before, under other settings."""
        self.history.note(settings)
        kernel = self.space.kernel(settings)
        key = text_key(kernel.text)
        if key in self._texts:
            self.same += 1
            # A space in which many settings are one kernel promises less than its size says.
            self.history.fruitless += 1
            self._alike.setdefault(key, []).append(settings)
            self._tell_alike(key)
            return None
        self._texts.add(key)
        return _Pending(settings, kernel, self._compilation.begin(kernel.text, self.kernel.name, self._limit))

    def _tell_alike(self, key: str) -> None:
        """Let the strategy know what came of settings whose kernel has the text of one that was tried, if it has ended:
        whoever never hears of a proposal waits for it."""
        trial = self._ended.get(key)
        for settings in self._alike.pop(key, ()) if trial is not None else ():
            assert trial is not None
            self._proposer.told(replace(trial, settings=settings, chosen=self.space.chosen(settings), won=False))

    def _note_refused(self) -> None:
        for settings, reason in self.space.refused.items():
            if settings not in self._refused:
                self._refused.add(settings)
                self._end(self._made(settings, Outcome.ILLEGAL, reason))

    def _trial(self, pending: _Pending) -> Trial:
        built = pending.candidate.wait()
        if isinstance(built, Failed):
            return self._made(pending.settings, built.outcome, built.reason, pending.kernel)
        contestant, seconds = built
        measured = self._measurer.hold(self._contest(contestant), self.kernel.name)
        if isinstance(measured, Failed):
            made = self._made(pending.settings, measured.outcome, measured.reason, pending.kernel)
        elif measured.wrong:
            made = self._made(pending.settings, Outcome.WRONG, measured.wrong, pending.kernel)
        else:
            interval = Interval.of(measured.ratios)
            made = replace(
                self._made(pending.settings, Outcome.MEASURED, "", pending.kernel),
                samples=measured.samples,
                incumbent=measured.incumbent,
                gain=interval.median * self.history.gain,
                low=interval.low,
                high=_finite(interval.high),
                won=measured.better,
                cold=measured.cold,
            )
            if made.won:
                self._incumbent = contestant
        return replace(made, compile_seconds=round(seconds, 4))

    def _made(self, settings: Settings, outcome: Outcome, reason: str, kernel: PlannedKernel | None = None) -> Trial:
        return Trial(
            self.kernel.digest,
            self._conditions.device,
            settings,
            outcome,
            reason,
            self._proposer.name,
            self.space.chosen(settings) if kernel is not None else (),
            against=self.history.best,
            threads=self._conditions.threads,
            when=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            versions=self._conditions.versions or {},
        )

    def _end(self, trial: Trial) -> None:
        self.history.add(trial)
        self._proposer.told(trial)
        if trial.won:
            self._first.extend(variants(trial.settings))
        self._record(trial)

    def _compiled(self, kernel: PlannedKernel) -> tuple[Contestant, float]:
        built = self._compilation.begin(kernel.text, self.kernel.name).wait()
        if isinstance(built, Failed):
            raise self._untunable(f"the rules' kernel does not compile: {built.reason}")
        return built

    def _against_itself(self) -> Measured:
        measured = self._measurer.hold(self._contest(self._rules), self.kernel.name)
        if isinstance(measured, Failed):
            raise self._untunable(f"the rules' kernel cannot be measured ({measured.outcome.value}): {measured.reason}")
        if measured.wrong:
            raise self._untunable(f"the rules' kernel does not repeat its results: {measured.wrong}")
        return measured

    def _untunable(self, what: str) -> NothingToTune:
        return NothingToTune(
            what, where=f"kernel {self.kernel.name}", cure="leave it out with --kernels, and report it"
        )

    def _contest(
        self, candidate: Contestant, *, incumbent: Contestant | None = None, complete: bool = False
    ) -> Contest:
        conditions = self._conditions
        return Contest(
            self.kernel.program,
            self.kernel.digest,
            self._rules,
            incumbent or self._incumbent,
            candidate,
            self.kernel.device,
            conditions.threads,
            conditions.cold,
            conditions.l2_bytes,
            complete,
        )


def _finite(bound: float) -> float:
    """JSON has no infinity; 0 stands for no bound on either side."""
    return bound if math.isfinite(bound) else 0.0
