"""A Gaussian process: what some values say of the values nearby, and how sure that is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from halide_backend.tune.search.features import Features

#: A process of mean 0 and this standard deviation, observed with a standard deviation of `_NOISE`.
_DEVIATION, _NOISE = 0.8, 0.05

#: Two values are correlated by exp(-_DECAY distance): a path that has no slope, since next to a good setting there may
#: be a bad one. Known one step away, a value has a standard deviation of 0.46 left.
_DECAY = 0.2


class GaussianProcess:
    """Of points, each a number for each of its coordinates.

    Their distance is the number of steps from one to the other, from value to value that any point has at a coordinate:
    the values of a knob stand where there may be a difference, whether they are 1, 2 and 4 or 1,000 and 64,000. A
    coordinate that only one of them has is a step.
    """

    def __init__(self) -> None:
        self._points: list[Features] = []
        self._values: list[float] = []

    def observe(self, point: Features, value: float) -> None:
        """Learn a value; at the same point there may be several."""
        self._points.append(point)
        self._values.append(value)

    def at(self, points: Sequence[Features], waiting: Sequence[Features] = ()) -> tuple[list[float], list[float]]:
        """Means and standard deviations of the values at `points`, without noise, given what was observed.

        Points that are `waiting` for their values leave the means alone, and deviations as if these were known.
        """
        here, known = _matrices(points, [*self._points, *waiting])
        prior = np.full(len(points), _DEVIATION**2)
        if not len(known):
            return [0.0] * len(points), np.sqrt(prior).tolist()
        observed = _covariance(known, known) + _NOISE**2 * np.eye(len(known))
        between = _covariance(known, here)
        variances = prior - (between * np.linalg.solve(observed, between)).sum(axis=0)
        count = len(self._points)
        weights = np.linalg.solve(observed[:count, :count], np.array(self._values))
        means = between[:count].T @ weights
        return means.tolist(), np.sqrt(np.maximum(variances, 0.0)).tolist()


def _matrices(*groups: Sequence[Features]) -> list[Any]:
    """For each group points x coordinates, the same coordinates for all, as ranks; NaN where a point has none."""
    points = [*itertools.chain(*groups)]
    names = sorted({name for point in points for name in point})
    ranks = np.full((len(points), len(names)), np.nan)
    for column, name in enumerate(names):
        rows = [row for row, point in enumerate(points) if name in point]
        ranks[rows, column] = np.unique([points[row][name] for row in rows], return_inverse=True)[1]
    ends = list(itertools.accumulate(map(len, groups)))
    return np.split(ranks, ends[:-1])


def _covariance(one: Any, other: Any) -> Any:
    """Of all pairs of points, m x n, for m x coordinates and n x coordinates."""
    distance = np.zeros((len(one), len(other)))
    # One coordinate at a time: a search may have thousands of points.
    for here, there in zip(one.T, other.T):
        apart = np.abs(here[:, None] - there[None, :])
        only_one = np.isnan(here)[:, None] != np.isnan(there)[None, :]
        distance += np.where(only_one, 1.0, np.nan_to_num(apart))
    return _DEVIATION**2 * np.exp(-_DECAY * distance)
