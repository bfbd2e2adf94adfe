"""What a Gaussian process says between, beside and far from what was observed."""

from __future__ import annotations

import pytest

from halide_backend.tune.search.gaussian_process import GaussianProcess


def process(*observed: tuple[dict[str, float], float]) -> GaussianProcess:
    found = GaussianProcess()
    for point, value in observed:
        found.observe(point, value)
    return found


def test_before_any_observation_everything_is_equally_uncertain() -> None:
    means, deviations = process().at([{"a": 1.0}, {"a": 5.0, "b": 2.0}])
    assert means == [0.0, 0.0] and deviations[0] == deviations[1] > 0.5
    assert process().at([]) == ([], [])


def test_it_is_sure_of_what_was_observed_and_less_sure_with_every_step() -> None:
    points = [{"a": float(step)} for step in range(4)]
    means, deviations = process((points[0], 0.4)).at(points)
    assert means[0] == pytest.approx(0.4, rel=0.01) and deviations[0] < 0.06
    assert means == sorted(means, reverse=True) and deviations == sorted(deviations)
    assert means[3] > 0 and deviations[1] == pytest.approx(0.46, abs=0.01)


def test_two_observations_agree_in_between() -> None:
    (between,), (unsure,) = process(({"a": 0.0}, 0.4), ({"a": 2.0}, 0.2)).at([{"a": 1.0}])
    (beside,), (less_sure,) = process(({"a": 0.0}, 0.4)).at([{"a": 1.0}])
    assert 0.2 < between < 0.4 and between < beside and unsure < less_sure


def test_an_observation_that_is_repeated_is_averaged() -> None:
    point = {"a": 1.0}
    (mean,), (deviation,) = process((point, 0.3), (point, 0.1)).at([point])
    assert mean == pytest.approx(0.2, rel=0.01) and deviation < process((point, 0.3)).at([point])[1][0]


def test_distances_are_steps_whatever_the_values() -> None:
    small = process(({"a": 1.0}, 0.4)).at([{"a": 2.0}, {"a": 4.0}])
    large = process(({"a": 10.0}, 0.4)).at([{"a": 14.0}, {"a": 16.0}])
    assert small == large
    # A coordinate that one of the two does not have is a step; one that neither has is none.
    opened = process(({"a": 1.0}, 0.4)).at([{"a": 1.0, "b": 3.0}, {"a": 2.0}, {"a": 1.0}])
    assert opened[0][0] == pytest.approx(opened[0][1]) and opened[0][2] > opened[0][0]


def test_what_is_waiting_for_its_value_is_less_uncertain_and_says_nothing() -> None:
    known, points = process(({"a": 0.0}, 0.4)), [{"a": 1.0}, {"a": 3.0}]
    means, deviations = known.at(points)
    same, surer = known.at(points, [{"a": 3.0}])
    assert same == pytest.approx(means)
    assert surer[1] < 0.06 and surer[0] < deviations[0]
    assert process().at(points, [{"a": 3.0}])[0] == [0.0, 0.0]
