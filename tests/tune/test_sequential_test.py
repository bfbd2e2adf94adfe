"""The statistics: bounds against counting, and the whole test on noise whose truth is known."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest

from halide_backend.tune.measurement.sequential_test import (
    LOOKS,
    Interval,
    Verdict,
    lower_bound,
    upper_bound,
    verdict,
)

#: Time of one sample, 1 without noise.
Noise = Callable[[random.Random], float]


def quiet(source: random.Random) -> float:
    return math.exp(source.gauss(0, 0.01))


def loud(source: random.Random) -> float:
    return math.exp(source.gauss(0, 0.2))


def heavy(source: random.Random) -> float:
    """Cauchy's distribution, one side of it: it has no mean."""
    return 1 + 0.02 * abs(math.tan(math.pi * (source.random() - 0.5)))


def stalled(source: random.Random) -> float:
    """One sample in five takes eight times as long: a thread was not there when the others waited."""
    return (8 if source.random() < 0.2 else 1) * math.exp(source.gauss(0, 0.02))


NOISES = (quiet, loud, heavy, stalled)


def run(noise: Noise, speed: float, seed: int) -> tuple[Verdict, int]:
    """How a contest ends whose candidate is `speed` times as fast, and after how many pairs."""
    source, ratios = random.Random(seed), list[float]()
    said = Verdict.UNDECIDED
    while said is Verdict.UNDECIDED:
        incumbent, candidate = noise(source), noise(source) / speed
        ratios.append(incumbent / candidate)
        said = verdict(ratios)
    return said, len(ratios)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.__name__)
def test_equals_do_not_win(noise: Noise) -> None:
    wins = sum(run(noise, 1.0, seed)[0] is Verdict.BETTER for seed in range(2000))
    # The bound is 1 %; 40 would be 2 %.
    assert wins <= 40


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.__name__)
def test_who_is_slower_wins_even_less(noise: Noise) -> None:
    assert sum(run(noise, 0.97, seed)[0] is Verdict.BETTER for seed in range(1000)) <= 10


@pytest.mark.parametrize(("noise", "speed"), [(quiet, 1.03), (heavy, 1.1), (stalled, 1.1), (loud, 1.5)])
def test_who_is_faster_wins(noise: Noise, speed: float) -> None:
    wins = sum(run(noise, speed, seed)[0] is Verdict.BETTER for seed in range(400))
    assert wins >= 360


def test_losers_go_early() -> None:
    for noise, most in ((quiet, 5), (stalled, 15)):
        pairs = [run(noise, 0.8, seed)[1] for seed in range(400)]
        assert sum(pairs) / len(pairs) <= most
    assert run(quiet, 0.2, 1) == (Verdict.NO_BETTER, 2)


def test_a_contest_ends() -> None:
    assert max(run(loud, 1.05, seed)[1] for seed in range(200)) == LOOKS[-1]
    assert verdict([1.0, 1.02] * (LOOKS[-1] // 2)) is Verdict.NO_BETTER


def test_nothing_is_said_between_looks() -> None:
    between = set(range(3, LOOKS[-1])) - set(LOOKS)
    assert {verdict([2.0] * count) for count in between} == {Verdict.UNDECIDED}


def test_a_margin_is_asked_for() -> None:
    assert verdict([1.005] * 20) is Verdict.NO_BETTER
    assert verdict([1.005] * 20, margin=1.0) is Verdict.BETTER


@pytest.mark.parametrize("count", [4, 6, 9, 12])
@pytest.mark.parametrize("error", [0.01, 0.05, 0.2])
def test_bounds_err_as_often_as_they_may(count: int, error: float) -> None:
    """All ways in which `count` values can lie below (-) or above (+) their median are equally likely."""
    outcomes = list(itertools.product((-1.0, 1.0), repeat=count))
    wrong_low = sum(lower_bound(signs, error) == 1.0 for signs in outcomes) / len(outcomes)
    wrong_high = sum(upper_bound(signs, error) == -1.0 for signs in outcomes) / len(outcomes)
    assert wrong_low == wrong_high <= error
    # The k-th smallest is above the median where fewer than k are below it: no larger k errs as seldom.
    above = [sum(signs.count(-1.0) < k for signs in outcomes) / len(outcomes) for k in range(1, count + 1)]
    rank = sum(share <= error for share in above)
    assert lower_bound([float(k) for k in range(1, count + 1)], error) == rank


def test_an_interval_of_few_pairs_says_nothing() -> None:
    assert Interval.of([1.0, 2.0, 3.0]) == Interval(0.0, 2.0, math.inf)
    interval = Interval.of([float(k) for k in range(1, 41)])
    # 40 tosses of a coin show 13 heads or fewer with a probability of 0.019, 14 or fewer with one of 0.040.
    assert (interval.low, interval.median, interval.high) == (14.0, 20.5, 27.0)
