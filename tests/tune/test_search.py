"""Strategies on a made-up kernel whose gains are known: they find the best, repeat nothing, and are repeatable."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
from recorded_trials import KNOBS, search, trials

from halide_backend.errors import MissingExtra
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.tune.recorded_space import RecordedSpace
from halide_backend.tune.search.features import coordinates, distance, program_features, setting_features
from halide_backend.tune.search.history import History
from halide_backend.tune.search.names import STRATEGIES
from halide_backend.tune.search.strategies import strategy
from halide_backend.tune.search.warm_start import Known
from halide_backend.tune.space import RULES, Space, neighbours
from halide_backend.tune.trial import Outcome, Trial

Made = Callable[..., LoopProgram]


@pytest.fixture(params=STRATEGIES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def needed(name: str, program: LoopProgram, seed: int) -> int:
    """Trials until the strategy meets the best gain of the made-up kernel."""
    space = RecordedSpace(trials(program))
    history = History(space)
    proposed = search(strategy(name, program_features(program), seed=seed), history, space.trials, 120, 1.5)
    assert space.trials[proposed[-1]].gain == 1.5
    return len(proposed)


def test_the_recorded_space_is_the_one_that_was_searched(row_sums: Made) -> None:
    space = RecordedSpace(trials(row_sums()))
    assert [decision.key for decision in space.decisions(RULES)] == list(KNOBS)
    for decision in space.decisions(RULES):
        values, rule = KNOBS[decision.key]
        assert set(decision.values) == set(values) and decision.rule == rule
    assert len(space.trials) == 2 * 3 * 5 * 4
    assert len(neighbours(space, RULES)) == 1 + 2 + 4 + 3


def test_a_walk_ends_at_a_trial_even_if_some_are_missing(row_sums: Made) -> None:
    some = trials(row_sums())[::3]
    space = RecordedSpace(some)
    history = History(space)
    proposed = search(strategy("random", program_features(row_sums()), seed=1), history, space.trials, 200)
    assert len(proposed) > len(some) // 2 and set(proposed) <= {trial.settings for trial in some}


def test_a_strategy_finds_the_best_and_repeats_nothing(name: str, row_sums: Made) -> None:
    assert needed(name, row_sums(), seed=0) <= 120


def test_equal_seeds_propose_the_same(name: str, row_sums: Made) -> None:
    program = row_sums()

    def proposed(seed: int) -> object:
        space = RecordedSpace(trials(program))
        made = strategy(name, program_features(program), seed=seed)
        return search(made, History(space), space.trials, 25)

    assert proposed(5) == proposed(5)
    assert proposed(5) != proposed(6)


@pytest.mark.parametrize("learning", ["hill-climb", "tpe", "model"])
def test_who_learns_needs_fewer_trials_than_chance(learning: str, row_sums: Made) -> None:
    program = row_sums()
    ours, chance = (statistics.fmean(needed(name, program, s) for s in range(8)) for name in (learning, "random"))
    assert ours < 0.7 * chance


def test_a_model_learns_from_other_programs(row_sums: Made) -> None:
    program, other = row_sums(64, 512), row_sums(128, 256)
    known = [Known(program_features(other), trials(other))]
    space = RecordedSpace(trials(program))
    history = History(space)
    proposed = search(strategy("model", program_features(program), known, warm=False), history, space.trials, 12)
    # 5 of 120 settings gain as much; the first proposals are not by chance.
    assert max(space.trials[settings].gain for settings in proposed[:4]) >= 1.4


def test_a_model_finds_out_that_other_programs_mislead(row_sums: Made) -> None:
    program, other = row_sums(64, 512), row_sums(128, 256)
    # Elsewhere everything is the other way round: what is best here was worst there.
    reversed_ = [replace(trial, gain=1 / trial.gain) if trial.measured else trial for trial in trials(other)]
    known = [Known(program_features(other), reversed_)]

    def needed_with(others: list[Known], seed: int) -> int:
        space = RecordedSpace(trials(program))
        history = History(space)
        made = strategy("model", program_features(program), others, seed=seed, warm=False)
        made.told(space.trials[RULES])
        return len(search(made, history, space.trials, 120, 1.5))

    misled = statistics.fmean(needed_with(known, seed) for seed in range(4))
    chance = statistics.fmean(needed("random", program, seed) for seed in range(8))
    assert misled < chance
    # A program that is as this one leads there as soon as the best is among the candidates.
    led = statistics.fmean(needed_with([Known(program_features(other), trials(other))], seed) for seed in range(4))
    assert led <= 4 < misled


def test_a_model_leaves_what_fails(row_sums: Made) -> None:
    program = row_sums()
    space = RecordedSpace(trials(program))
    history = History(space)
    made = strategy("model", program_features(program), seed=0)
    made.told(space.trials[RULES])
    broken = 0
    for _ in range(20):
        settings = made.propose(history)
        assert settings is not None
        fails = dict(space.chosen(settings))["transposes.side"] == 16
        broken += fails
        trial = replace(space.trials[settings], outcome=Outcome.WRONG, gain=0.0) if fails else space.trials[settings]
        history.add(trial)
        made.told(trial)
    # A third of all settings.
    assert broken <= 4


def test_a_model_spreads_proposals_that_wait_for_each_other(row_sums: Made) -> None:
    program = row_sums()
    space = RecordedSpace(trials(program))

    def apart(told: bool) -> float:
        """Mean number of knobs in which four proposals differ, each told or all of them waiting."""
        history = History(space)
        made = strategy("model", program_features(program), seed=0)
        made.told(space.trials[RULES])
        found = []
        for _ in range(4):
            settings = made.propose(history)
            assert settings is not None
            history.note(settings)
            found.append(dict(space.chosen(settings)))
            if told:
                made.told(replace(space.trials[settings], outcome=Outcome.MEASURED, gain=1.0))
        return statistics.fmean(
            sum(one[key] != other[key] for key in KNOBS) for one, other in itertools.combinations(found, 2)
        )

    assert apart(False) >= apart(True)


def test_a_model_learns_from_searches_that_go_on(row_sums: Made) -> None:
    program, other = row_sums(64, 512), row_sums(128, 256)
    elsewhere: list[Trial] = []
    known = [Known(program_features(other), elsewhere)]
    made = strategy("model", program_features(program), known, warm=False)
    space = RecordedSpace(trials(program))
    made.told(space.trials[RULES])
    elsewhere += trials(other)
    proposed = search(made, History(space), space.trials, 3)
    assert max(space.trials[settings].gain for settings in proposed) >= 1.4


def test_a_warm_start_takes_over_what_others_find_meanwhile(row_sums: Made, device: Device) -> None:
    program = row_sums()
    won = Trial("other", device.name, (("parallel.threads", False),), Outcome.MEASURED, gain=1.2, won=True)
    elsewhere: list[Trial] = []
    history = History(Space(program, device))
    own = Known(program_features(program), history.trials)
    proposer = strategy("random", program_features(program), [own, Known(own.features, elsewhere)])
    # Its own best is nothing new.
    history.add(replace(won, settings=(("vectors.bytes", 32),)))
    assert proposer.propose(history) != won.settings
    elsewhere.append(won)
    assert proposer.propose(history) == won.settings


def test_a_warm_start_begins_with_what_was_best_elsewhere(row_sums: Made, device: Device) -> None:
    program = row_sums()
    best = (("parallel.threads", False), ("vector_reduction.accumulators@sum_0", 8))
    won = Trial("other", device.name, best, Outcome.MEASURED, gain=1.2, won=True)
    little = Trial("third", device.name, (("parallel.task_work", 1000),), Outcome.MEASURED, gain=1.01, won=True)
    far = Trial("far", device.name, (("parallel.task_work", 64_000),), Outcome.MEASURED, gain=1.5, won=True)
    near = program_features(row_sums(128, 512))
    known = [Known(program_features(row_sums(8192, 8192)), [far]), Known(near, [little]), Known(near, [won])]
    history = History(Space(program, device))
    proposer = strategy("random", program_features(program), known)
    assert proposer.propose(history) == best
    assert proposer.propose(history) == far.settings


def test_without_the_package_the_error_says_what_to_install(row_sums: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name, package in (("tpe", "optuna"), ("model", "sklearn.ensemble")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtra, match="cannot be imported") as caught:
            strategy(name, program_features(row_sums()))
        assert "halide-backend[tune]" in caught.value.cure


def test_an_exhausted_space_ends(name: str, row_sums: Made, device: Device) -> None:
    space = Space(row_sums(), device)
    history = History(space)
    proposer = strategy(name, program_features(space.program))
    every = math.prod(len(decision.values) for decision in space.decisions(RULES))
    proposed = 0
    while (settings := proposer.propose(history)) is not None:
        history.note(settings)
        proposed += 1
        trial = Trial("", "", settings, Outcome.MEASURED, chosen=space.chosen(settings), gain=0.9)
        history.add(trial)
        proposer.told(trial)
        assert proposed < every
    assert proposed > every // 2


def test_features_are_those_of_the_program_and_the_settings(row_sums: Made) -> None:
    small, large = program_features(row_sums(64, 512)), program_features(row_sums(64, 1024))
    assert small["reductions"] == 1.0 and large["bytes"] > small["bytes"]
    assert distance(small, small) == 0 < distance(small, large)
    chosen = (("a.b@f", 3), ("a.b@g", 15), ("a.c", True), ("a.d", "cache"))
    assert setting_features(chosen) == {"departing": 0.0, "a.b": 3.0, "a.c": 1.0, "a.d = cache": 1.0}
    assert coordinates(chosen) == {"a.b@f": 2.0, "a.b@g": 4.0, "a.c": 1.0, "a.d = cache": 0.0}
    rules = (("a.b@f", 3), ("a.b@g", 3), ("a.c", False), ("a.d", "read only"))
    assert setting_features(chosen, rules) == {
        "departing": 3.0,
        "a.b": 3.0,
        "a.b from the rule's": 1.0,
        "a.c": 1.0,
        "a.c from the rule's": 1.0,
        "a.d = cache": 1.0,
        "a.d from the rule's": 1.0,
    }
