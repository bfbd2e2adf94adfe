from __future__ import annotations

import pytest

from halide_backend.demonstration import rounds
from halide_backend.demonstration.figures import Times


class Clock:
    """A clock that only steps move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(rounds.time, "perf_counter", lambda: self.now)

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def test_contestants_take_turns_and_each_is_charged_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    turns: list[str] = []

    def step(name: str, seconds: float) -> None:
        turns.append(name)
        clock.pass_(seconds)

    times = rounds.alternate({"a": lambda: step("a", 0.25), "b": lambda: step("b", 0.5)}, seconds=7.5)
    assert turns == ["a", "b"] * (len(turns) // 2)
    assert times["a"] == Times(median=250, lower_quartile=250, upper_quartile=250, samples=11)
    assert times["b"].median == 500
    # Two rounds of warm-up are run and not counted.
    assert len(turns) == 2 * (11 + rounds.WARM_UP_ROUNDS)


def test_slow_steps_still_get_enough_rounds_for_quartiles(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    times = rounds.alternate({"slow": lambda: clock.pass_(100.0)}, seconds=1)
    assert times["slow"].samples == rounds.FEWEST


def test_quick_steps_stop_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    assert rounds.alternate({"quick": lambda: None}, seconds=1)["quick"].samples == rounds.MOST


def test_quartiles_are_those_of_the_sample() -> None:
    assert Times.of([5, 1, 4, 2, 3]) == Times(3, 2, 4, 5)
