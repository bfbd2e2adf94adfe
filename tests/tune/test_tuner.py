"""Tuning one kernel, and several: what is chosen, recorded, kept, resumed; times are made up here."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bad_kernels import sabotaged

from halide_backend.build.target import Target
from halide_backend.errors import HalideBackendError, NothingToTune, ScheduleFileError, TrialLogError
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.schedules import schedule_file
from halide_backend.schedules.thread_class import ThreadRange
from halide_backend.schedules.tuned_store import tuned_store
from halide_backend.tune.compilation import Candidate, Compilation, text_key
from halide_backend.tune.keeping import Kept
from halide_backend.tune.measurement.contest import Contest, Contestant, Measured
from halide_backend.tune.measurement.measurer import Failed, Measurer
from halide_backend.tune.measurement.sequential_test import LOOKS, Interval, Verdict, verdict
from halide_backend.tune.search.hill_climb import HillClimb
from halide_backend.tune.search.history import History
from halide_backend.tune.session import Search, Session
from halide_backend.tune.space import RULES, Settings, Space
from halide_backend.tune.trial import Outcome, Trial
from halide_backend.tune.trial_log import Recorded, TrialLog, read
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuned import Tuned, best_so_far, effects, geometric_mean, overall_gain
from halide_backend.tune.tuner import Conditions, Tuner

Made = Callable[..., LoopProgram]

SERIAL = ("parallel.threads", False)
EIGHT = ("vector_reduction.accumulators@sum_0", 8)


class NoCompilation:
    """Stands for `Compilation`: a kernel is its text."""

    at_once = 2
    target = Target.host()

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.limits: list[float | None] = []

    def ahead(self, text: str, name: str) -> Any:
        return self.begin(text, name)

    def begin(self, text: str, name: str, limit: float | None = None) -> Any:
        self.limits.append(limit)
        key = text_key(text)
        self.begun.append(key)

        class Ready(Candidate):
            def wait(self) -> Any:
                return Contestant(key, text.encode(), {}, ""), 0.01

        return Ready(key, None)  # type: ignore[arg-type]


class MadeUpTimes:
    """Stands for `Measurer`: the seconds of a kernel follow from its text."""

    def __init__(self, seconds: Callable[[str], float]) -> None:
        self.seconds = seconds
        self.contests: list[Contest] = []
        self.renewed = 0

    def hold(self, contest: Contest, name: str) -> Measured | Failed:
        self.contests.append(contest)
        ours, theirs = (self.seconds(each.object.decode()) for each in (contest.candidate, contest.incumbent))
        if ours < 0:
            return Failed(Outcome.CRASHED, "it fell")
        count = 1
        while verdict([theirs / ours] * count) is Verdict.UNDECIDED:
            count += 1
        count = LOOKS[-1] if contest.complete else count
        better = verdict([theirs / ours] * count) is Verdict.BETTER
        return Measured((ours,) * count, (theirs,) * count, better)

    def renew(self) -> None:
        self.renewed += 1


def serial_is_fast(text: str) -> float:
    """Twice as fast without threads, and once more with 8 accumulators."""
    seconds = 8e-6 if "Parallel(" in text else 4e-6
    return seconds / 2 if ", 128" in text else seconds


def tuner_of(program: LoopProgram, device: Device, measurer: MadeUpTimes, record: Any = lambda trial: None) -> Tuner:
    made: Any = measurer
    compilation: Any = NoCompilation()
    return Tuner(
        TunableKernel("sum", program),
        Space(program, device),
        HillClimb(),
        made,
        compilation,
        Conditions(device.name, versions={"halide": "21"}),
        record,
    )


def run(tuner: Tuner) -> list[Trial]:
    while not tuner.exhausted:
        tuner.step()
    return tuner.history.trials


def test_the_rules_are_measured_first_and_the_best_is_found(row_sums: Made, device: Device) -> None:
    recorded: list[Trial] = []
    tuner = tuner_of(row_sums(), device, MadeUpTimes(serial_is_fast), recorded.append)
    trials = run(tuner)
    assert trials == recorded
    first = trials[0]
    assert (first.settings, first.outcome, first.gain) == (RULES, Outcome.MEASURED, 1.0)
    assert tuner.seconds == 8e-6
    assert dict(tuner.history.best)["parallel.threads"] is False
    assert tuner.history.gain == pytest.approx(max(trial.gain for trial in trials))
    for trial in trials:
        assert trial.program == tuner.kernel.digest and trial.versions == {"halide": "21"} and trial.when
        # Gains are those against the rules, whoever was the incumbent.
        assert trial.gain == pytest.approx(8e-6 / trial.samples[0])
    assert len({trial.settings for trial in trials}) == len(trials)


def test_settings_with_one_text_are_measured_once(row_sums: Made, device: Device) -> None:
    measurer = MadeUpTimes(serial_is_fast)
    tuner = tuner_of(row_sums(), device, measurer)
    run(tuner)
    keys = [contest.candidate.key for contest in measurer.contests]
    compilation: Any = tuner._compilation
    assert sorted(compilation.begun) == sorted(keys)
    assert len(keys) == len(set(keys)) and tuner.same > 0


def test_a_strategy_hears_what_came_of_every_proposal(row_sums: Made, device: Device) -> None:
    """Also where the kernel was measured under other settings, before or after it was proposed; a proposal in vain."""

    class Heard(HillClimb):
        def __init__(self) -> None:
            super().__init__()
            self.proposed: list[Settings] = []
            self.heard: dict[Settings, Trial] = {}

        def propose(self, history: History) -> Settings | None:
            settings = super().propose(history)
            self.proposed += [settings] if settings is not None else []
            return settings

        def told(self, trial: Trial) -> None:
            assert trial.settings not in self.heard
            self.heard[trial.settings] = trial
            super().told(trial)

    tuner = tuner_of(row_sums(), device, MadeUpTimes(serial_is_fast))
    strategy = tuner._proposer = Heard()
    trials = run(tuner)
    assert tuner.same > 0 and set(strategy.heard) == set(strategy.proposed)
    gains = {text_key(tuner.space.kernel(trial.settings).text): trial.gain for trial in trials}
    for settings, trial in strategy.heard.items():
        assert trial.gain == gains[text_key(tuner.space.kernel(settings).text)]
        assert trial.chosen == tuner.space.chosen(settings) and not (trial.won and trial not in trials)
    last = max(k for k, trial in enumerate(trials) if trial.won)
    assert tuner.history.fruitless >= len(trials) - 1 - last


def test_a_candidate_may_compile_for_some_seconds(row_sums: Made, device: Device) -> None:
    tuner = tuner_of(row_sums(), device, MadeUpTimes(serial_is_fast))
    run(tuner)
    compilation: Any = tuner._compilation
    # The rules' kernel takes as long as it does, 0.01 s here.
    assert compilation.limits[0] is None and set(compilation.limits[1:]) == {4.0}


def test_without_cores_to_spare_candidates_are_compiled_together(row_sums: Made, device: Device) -> None:
    for overlap, most in ((False, 4), (True, 2)):
        tuner = tuner_of(row_sums(), device, MadeUpTimes(serial_is_fast))
        tuner._conditions = replace(tuner._conditions, overlap=overlap)
        compilation: Any = tuner._compilation
        begun = [len(compilation.begun)]
        for _ in range(8):
            tuner.step()
            begun.append(len(compilation.begun))
        added = [after - before for before, after in itertools.pairwise(begun)]
        # Four, and the next ones after these; or always as many as there are workers.
        assert added == ([4, 0, 0, 0] * 2 if most == 4 else [2] + [1] * 7)


def test_the_best_is_confirmed_in_a_fresh_process_or_not_chosen(row_sums: Made, device: Device) -> None:
    measurer = MadeUpTimes(serial_is_fast)
    tuner = tuner_of(row_sums(), device, measurer)
    assert tuner.confirmed() is None
    run(tuner)
    interval = tuner.confirmed()
    assert interval is not None and interval.median == pytest.approx(tuner.history.gain)
    assert measurer.renewed == 2 and measurer.contests[-1].complete
    measurer.seconds = lambda text: 1e-6
    assert tuner.confirmed() is None
    measurer.seconds = lambda text: -1.0
    assert tuner.confirmed() is None


def test_nothing_better_leaves_the_rules(row_sums: Made, device: Device) -> None:
    tuner = tuner_of(row_sums(), device, MadeUpTimes(lambda text: 1e-6))
    assert not any(trial.won for trial in run(tuner))
    assert tuner.history.best == RULES


def test_rules_that_cannot_run_are_an_error(row_sums: Made, device: Device) -> None:
    with pytest.raises(NothingToTune, match=r"cannot be measured \(crashed\): it fell"):
        tuner_of(row_sums(), device, MadeUpTimes(lambda text: -1.0))


def test_a_resumed_search_repeats_nothing_but_the_best(row_sums: Made, device: Device) -> None:
    first = tuner_of(row_sums(), device, MadeUpTimes(serial_is_fast))
    earlier = run(first)
    measurer = MadeUpTimes(serial_is_fast)
    second = tuner_of(row_sums(), device, measurer)
    second.resume(earlier)
    assert second.history.best == first.history.best
    assert len(measurer.contests) == 2
    run(second)
    assert len(measurer.contests) == 2 and len(second.history.trials) == len(earlier) + 1


class Watched:
    """Stands for a table of progress."""

    def __init__(self, interrupt_after: int = 0) -> None:
        self.tries = 0
        self.found: list[Tuned] = []
        self.reasons: list[HalideBackendError] = []
        self.interrupt_after = interrupt_after

    def begins(self, tuners: Sequence[Tuner], ends_at: float) -> None:
        self.order = [tuner.kernel.name for tuner in tuners]

    def tried(self, tuner: Tuner, trial: Trial) -> None:
        self.tries += 1
        if self.tries == self.interrupt_after:
            raise KeyboardInterrupt

    def tuned(self, found: Tuned) -> None:
        self.found.append(found)

    def left_out(self, kernel: TunableKernel, reason: HalideBackendError) -> None:
        self.reasons.append(reason)


def session(device: Device, log: TrialLog, seconds: Callable[[str], float] = serial_is_fast) -> Session:
    measurer: Any = MadeUpTimes(seconds)
    compilation: Any = NoCompilation()
    return Session(device, measurer, compilation, Conditions(device.name), log, Recorded())


def test_a_session_tunes_what_takes_most_time_first(
    row_sums: Made, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "cache"))
    kernels = [TunableKernel("rare", row_sums(64, 512)), TunableKernel("often", row_sums(64, 256), count=9)]
    watched, kept = Watched(), Kept(str(tmp_path / "schedules" / "new.toml"))
    with TrialLog(tmp_path / "log") as log:
        found = session(device, log).run(kernels, Search("hill-climb", 30), watched, partial(kept.keep, device))
    assert watched.order == ["often", "rare"]
    assert list({each.kernel.name: each for each in watched.found}.values()) == found
    assert [each.complete for each in found] == [True, True]
    assert sum(each.share for each in found) == pytest.approx(1)
    assert min(each.gain for each in found) >= 2
    assert geometric_mean(found) >= 2 and overall_gain(found) >= 2
    recorded = read(tmp_path / "log")
    assert set(recorded.names.values()) == {"often", "rare"}
    assert len(recorded.trials) == sum(len(each.trials) for each in found)
    entries = schedule_file.read(tmp_path / "schedules" / "new.toml")
    assert {entry.program for entry in entries} == {kernel.digest for kernel in kernels}
    assert set(tuned_store().entries()) == set(entries)
    assert all(dict(entry.knobs)["parallel.threads"] is False for entry in entries)
    # They are for what they were measured on.
    assert all(entry.threads == ThreadRange(1, 1) and entry.device == device.name for entry in entries)


def test_a_second_session_adds_to_the_file(
    row_sums: Made, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Schedules of other kernels stay; that of a kernel which is tuned again is replaced."""
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "new.toml"
    first, again, other = (TunableKernel(name, row_sums(64, n)) for name, n in (("a", 512), ("b", 512), ("c", 256)))
    names = []
    for kernel in (first, other, again):
        with TrialLog(tmp_path / kernel.name) as log:
            session(device, log).run(
                [kernel], Search("hill-climb", 30), Watched(), partial(Kept(str(file)).keep, device)
            )
        names.append({entry.program: entry.name for entry in schedule_file.read(file)})
    assert names == [
        {first.digest: "a"},
        {first.digest: "a", other.digest: "c"},
        {first.digest: "b", other.digest: "c"},
    ]


def test_what_a_later_turn_finds_takes_the_place_of_what_was_kept(
    row_sums: Made, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two kernels whose turns alternate, and which become faster with every one of some new texts."""
    monkeypatch.setenv("HALIDE_BACKEND_CACHE_DIR", str(tmp_path / "cache"))
    seen: dict[str, float] = {}

    def faster_in_every_turn(text: str) -> float:
        if text not in seen:
            seen[text] = 8e-6 * 0.9 ** (len(seen) // 13)
        return seen[text]

    kernels = [TunableKernel("one", row_sums(64, 256)), TunableKernel("two", row_sums(64, 512))]
    kept: list[Tuned] = []
    file = Kept(str(tmp_path / "new.toml"))

    def keep(found: Tuned) -> None:
        kept.append(found)
        file.keep(device, found)

    with TrialLog(tmp_path / "log") as log:
        found = session(device, log, faster_in_every_turn).run(kernels, Search("random", 30), Watched(), keep)
    assert len(kept) > len({each.kernel.name for each in kept}) == 2
    last = {each.kernel.digest: each.settings for each in kept}
    assert last == {each.kernel.digest: each.settings for each in found}
    entries = schedule_file.read(tmp_path / "new.toml")
    assert sorted(entry.program for entry in entries) == sorted(last)
    for entry in entries:
        assert set(last[entry.program]) <= set(entry.knobs)


def test_what_was_confirmed_stays_if_something_better_is_not(
    row_sums: Made, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = [TunableKernel("one", row_sums(64, 256)), TunableKernel("two", row_sums(64, 512))]
    seen: dict[str, float] = {}

    def faster_in_every_turn(text: str) -> float:
        return seen.setdefault(text, 8e-6 * 0.9 ** (len(seen) // 13))

    confirmed, asked = Tuner.confirmed, list[str]()

    def once(self: Tuner) -> Interval | None:
        asked.append(self.kernel.name)
        return confirmed(self) if asked.count(self.kernel.name) == 1 else None

    monkeypatch.setattr(Tuner, "confirmed", once)
    kept: list[Tuned] = []
    with TrialLog(tmp_path / "log") as log:
        found = session(device, log, faster_in_every_turn).run(kernels, Search("random", 30), Watched(), kept.append)
    assert len(asked) > 2 == len(kept)
    assert {each.kernel.name: each.settings for each in found} == {each.kernel.name: each.settings for each in kept}
    assert all(each.confirmed is not None and each.complete for each in found)


def test_a_file_that_is_no_schedule_file_is_an_error_before_the_search(tmp_path: Path) -> None:
    (tmp_path / "new.toml").write_text("schema = ")
    with pytest.raises(ScheduleFileError, match="TOML"):
        Kept(str(tmp_path / "new.toml"))
    assert (tmp_path / "new.toml").read_text() == "schema = "


def test_an_interrupted_session_keeps_the_best_so_far(row_sums: Made, device: Device, tmp_path: Path) -> None:
    # Both take as long, so that the one that reads more has less to gain, and has its turn later.
    kernels = [TunableKernel("one", row_sums(64, 256)), TunableKernel("two", row_sums(64, 512))]
    kept: list[Tuned] = []
    with TrialLog(tmp_path / "log") as log:
        found = session(device, log).run(kernels, Search("hill-climb", 30), Watched(12), kept.append)
    assert [len(each.trials) for each in found] == [13, 1]
    assert [each.confirmed is not None for each in found] == [True, False]
    assert kept == found[:1] and not found[0].complete
    assert len(read(tmp_path / "log").trials) == 14


def test_a_full_disk_ends_a_session_and_keeps_the_best(
    row_sums: Made, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Tuned] = []
    with TrialLog(tmp_path / "log") as log:
        write, count = log.trial, 0

        def full(trial: Trial) -> None:
            nonlocal count
            count += 1
            if count > 12:
                raise TrialLogError("the disk is full", where="log")
            write(trial)

        monkeypatch.setattr(log, "trial", full)
        made = session(device, log)
        found = made.run([TunableKernel("one", row_sums())], Search("hill-climb", 30), Watched(), kept.append)
    assert made.trouble is not None and "full" in made.trouble.what
    assert kept == found and found[0].confirmed is not None


def test_no_time_and_no_kernel_are_errors(row_sums: Made, device: Device, tmp_path: Path) -> None:
    kernel = TunableKernel("one", row_sums())
    with TrialLog(tmp_path / "log") as log:
        with pytest.raises(NothingToTune, match="no time") as caught:
            session(device, log).run([kernel], Search("random", 0), Watched(), print)
        assert caught.value.where == "--budget"
        watched = Watched()
        with pytest.raises(NothingToTune, match="none of the kernels"):
            session(device, log, lambda text: -1.0).run([kernel], Search("random", 5), watched, print)
        assert "it fell" in watched.reasons[0].what


def test_a_budget_is_kept(row_sums: Made, device: Device, tmp_path: Path) -> None:
    kernels = [TunableKernel(f"k{k}", row_sums(64, 128 * k)) for k in (1, 2, 3)]
    with TrialLog(tmp_path / "log") as log:
        found = session(device, log).run(kernels, Search("hill-climb", 1e-6), Watched(), print)
        assert [len(each.trials) for each in found] == [1]
        watched = Watched()
        (tuned,) = session(device, log).run(kernels, Search("hill-climb", 1e-6), watched, print)
    assert tuned.kernel is kernels[0] and tuned.confirmed is None
    assert ["before its turn" in reason.what for reason in watched.reasons] == [True, True]


def test_effects_and_curves_are_those_of_the_trials() -> None:
    def trial(side: int, gain: float, won: bool = False) -> Trial:
        return Trial("", "", (), Outcome.MEASURED, chosen=(("side", side), ("same", 1)), gain=gain, won=won)

    crashed = Trial("", "", (), Outcome.CRASHED, chosen=(("side", 4),))
    trials = [trial(8, 1.0), trial(4, 0.5), trial(4, 0.7), crashed, trial(16, 1.2, True), trial(16, 1.1)]
    found = {(each.knob, each.setting): (each.gain, each.trials) for each in effects(trials)}
    assert found == {("side", "8"): (1.0, 1), ("side", "4"): (0.6, 2), ("side", "16"): (pytest.approx(1.15), 2)}
    assert best_so_far(trials) == [1.0, 1.0, 1.0, 1.0, 1.2, 1.2]


def test_a_real_contest_tells_fast_from_slow_and_right_from_wrong(doubled: Made, device: Device) -> None:
    program = doubled(100_000)
    text = Space(program, device).kernel(RULES).text
    added = "t1 = ops.add(t0, t0)"
    # Operands are less than 100, so that the work changes nothing, which no compiler knows.
    work = "h = t1\n    for k in range(80): h = (h ^ (h >> 3)) * 5 + k\n    t1 = t1 ^ (h & (t0 >> 20))"
    texts = (text, text.replace(added, f"{added}\n    {work}"), sabotaged(text, "wrong"))
    with Compilation(Target.host(), workers=1) as compilation, Measurer() as measurer:
        built = [compilation.begin(each, "k").wait() for each in texts]
        rules, slow, wrong = (each[0] for each in built if not isinstance(each, Failed))

        def hold(candidate: Contestant, incumbent: Contestant, cold: bool = False) -> Measured:
            contest = Contest(program, "digest", rules, incumbent, candidate, cold=cold)
            found = measurer.hold(contest, "k")
            assert isinstance(found, Measured)
            return found

        assert hold(wrong, rules).wrong.startswith("out_ptr0: ")
        loses, wins = hold(slow, rules), hold(rules, slow)
        assert (loses.better, wins.better) == (False, True)
        assert len(loses.samples) == len(loses.incumbent) < len(wins.samples) and not loses.cold
        measurer.renew()
        assert hold(slow, rules, cold=True).cold
