"""Callables take turns, for as long as was asked."""

from __future__ import annotations

from collections.abc import Callable

from halide_backend.bench.timing import ROUNDS, WARM_UP, alternate, calls


class Clock:
    """A clock that samples of a given length move on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order: list[str] = []

    def sampler(self, name: str, microseconds: float) -> Callable[[], float]:
        def sample() -> float:
            self.order.append(name)
            self.now += microseconds / 1e6
            return microseconds

        return sample


def test_quick_ones_are_sampled_until_the_time_is_over_in_both_orders() -> None:
    clock = Clock()
    found = alternate(
        {"a": clock.sampler("a", 1000), "b": clock.sampler("b", 3000)}, seconds=0.0999, clock=lambda: clock.now
    )
    assert found == {"a": [1000] * 50, "b": [3000] * 50}
    counted = clock.order[2 * WARM_UP :]
    assert counted == ["a", "b", "b", "a"] * 25


def test_slow_ones_are_sampled_as_often_as_was_asked() -> None:
    clock = Clock()
    found = alternate({"a": clock.sampler("a", 5e5)}, seconds=0.1, clock=lambda: clock.now)
    assert found == {"a": [5e5] * ROUNDS}


def test_a_sample_is_the_mean_of_calls_that_fill_a_millisecond() -> None:
    clock = Clock()
    call = clock.sampler("call", 200)
    sample = calls(lambda: call(), (), clock=lambda: clock.now)
    clock.order.clear()
    assert round(sample(), 6) == 200
    assert len(clock.order) == 1 + 5


def test_what_another_callable_left_in_the_caches_is_not_in_a_sample() -> None:
    """The first call after eager's depthwise convolution took several times as long."""
    clock, cold = Clock(), [True]

    def call() -> None:
        clock.now += 900e-6 if cold[0] else 200e-6
        cold[0] = False

    sample = calls(call, (), clock=lambda: clock.now)
    cold[0] = True
    assert round(sample(), 6) == 200


def test_one_disturbed_call_does_not_say_how_many_make_a_sample() -> None:
    clock, times = Clock(), iter([190e-6, 1900e-6])

    def call() -> None:
        clock.now += next(times, 190e-6)
        clock.order.append("call")

    sample = calls(call, (), clock=lambda: clock.now)
    clock.order.clear()
    sample()
    assert len(clock.order) == 1 + 5
