"""Strategies compared on a log: nothing is measured, and the same log says the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_trials import trials

from halide_backend import cli
from halide_backend.errors import NothingToTune
from halide_backend.program.loop_program import LoopProgram
from halide_backend.program.serialization import digest
from halide_backend.tune import comparison
from halide_backend.tune.search.features import program_features
from halide_backend.tune.search.names import STRATEGIES
from halide_backend.tune.trial_log import Recorded, TrialLog

Made = Callable[..., LoopProgram]


def recorded(*programs: LoopProgram) -> Recorded:
    found = Recorded({digest(program): program for program in programs})
    for program in programs:
        found.trials += trials(program)
    return found


def test_a_log_is_replayed_the_same_every_time(row_sums: Made) -> None:
    log = recorded(row_sums())
    one, other = (comparison.compare(log, seed=3, seeds=2) for _ in range(2))
    assert one == other and len(one) >= 2
    by_name = {each.strategy: each.mean for each in one}
    assert set(by_name) <= set(STRATEGIES)
    # Of 120 settings 2 are within 5 % of the best gain of 0.5: by chance a fortieth of the way there each trial.
    assert 1 <= by_name["hill-climb"] < by_name["random"] <= 120


def test_programs_that_say_nothing_are_left_out(row_sums: Made, doubled: Made) -> None:
    log = recorded(row_sums())
    log.programs[digest(doubled())] = doubled()
    log.trials += trials(doubled())[:5]
    (found, *_) = comparison.compare(log, seeds=1)
    assert set(found.trials) == {digest(row_sums())}
    with pytest.raises(NothingToTune, match="no kernel has 12 trials"):
        comparison.compare(Recorded({digest(doubled()): doubled()}, trials=trials(doubled())[:5]))


def test_a_lucky_trial_is_no_gain(row_sums: Made, doubled: Made) -> None:
    log, program = recorded(row_sums()), doubled()
    log.programs[digest(program)] = program
    # Forty trials as fast as the rules: the median of one was 1.2 by luck, its bound says that it may be nothing.
    rules, *others = trials(program)
    log.trials += [replace(rules, gain=1.0, low=0.99)]
    log.trials += [replace(other, gain=1.2 if k == 0 else 1.0, low=0.97) for k, other in enumerate(others[:40])]
    (found, *_) = comparison.compare(log, seeds=1)
    assert set(found.trials) == {digest(row_sums())}
    # Measured against an incumbent that was faster itself, the bound is of both.
    log.trials[-1] = replace(log.trials[-1], gain=1.25, low=1.02, against=others[0].settings)
    (found, *_) = comparison.compare(log, seeds=1)
    assert set(found.trials) == {digest(row_sums()), digest(program)}


def test_the_command_prints_a_table(row_sums: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, program = tmp_path / "log.jsonl", row_sums()
    with TrialLog(path) as log:
        log.program(digest(program), program, "sum")
        for trial in trials(program):
            log.trial(trial)
    assert cli.main(["tune", str(path), "--compare-strategies", "--seed", "3"]) == 0
    printed = capsys.readouterr().out
    assert "1 kernels, 10 seeds each, 100 of random search" in printed and "hill-climb" in printed
    (row,) = [line.split() for line in printed.splitlines() if line.startswith("random ")]
    assert row[2:6] == ["1.00", "1.00", "to", "1.00"]


def test_a_strategy_is_held_against_another_on_the_same_programs() -> None:
    programs = [f"{number:08x}" for number in range(8)]
    chance = comparison.Comparison("random", dict.fromkeys(programs, 10.0))
    found = comparison.Comparison("model", {digest: 2.0 + 6.0 * (digest == programs[7]) for digest in programs})
    assert found.against(chance) == pytest.approx(0.275)
    assert found.held_back == tuple(programs[::2]) and found.against(chance, found.held_back) == pytest.approx(0.2)
    low, high = found.interval(chance)
    # One kernel of eight decides: it is drawn three times or more in 7 % of draws, and not at all in 34 %.
    assert low == pytest.approx(0.2) and 0.4 <= high <= 0.51
    assert (low, high) == found.interval(chance)


def test_a_strategy_knows_the_trials_of_all_other_programs_and_none_of_this_one(
    row_sums: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = recorded(one := row_sums(64, 512), other := row_sums(128, 256))
    made, seen = comparison.strategy, list[tuple[object, set[str]]]()

    def strategy(name: str, features: object, others: Any, **options: Any) -> Any:
        seen.append((features, {trial.program for known in others for trial in known.trials}))
        assert [known.features for known in others] != [features]
        return made(name, features, others, **options)

    monkeypatch.setattr(comparison, "strategy", strategy)
    comparison.compare(log, seeds=1)
    others = {digest(one): digest(other), digest(other): digest(one)}
    for program in (one, other):
        mine = [known for features, known in seen if features == program_features(program)]
        assert mine and all(known == {others[digest(program)]} for known in mine)
