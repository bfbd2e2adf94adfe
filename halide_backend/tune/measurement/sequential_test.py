"""When to stop measuring two kernels in turns, and what may be said then.

The data are ratios of samples taken one right after the other: the incumbent's time over the candidate's, above 1 where
the candidate is faster. Nothing is assumed of them but that they are independent and that their median is the one that
matters: bounds of a median are order statistics of a sample (David and Nagaraja, Order Statistics, 2003, section 7.1),
whatever its distribution and however heavy its tails.

The data are looked at several times. Each look may err with a probability of its own, and the sum bounds that of the
whole test (Bonferroni): a candidate that is equal to the incumbent wins in less than 1 % of tests. Losing by mistake is
cheaper, so losers go earlier.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

#: Numbers of pairs at which the data are looked at.
LOOKS = (5, 10, 20, 40)

#: Probability of an equal candidate winning, and of a better one losing, at each look.
_FALSE_WIN, _FALSE_LOSS = 0.0025, 0.05

#: A winner is faster by this factor at least: what is less is not worth another schedule.
MARGIN = 1.01

#: Whoever takes three times as long, twice in a row, is no winner; more samples of it cost too much time.
_HOPELESS, _HOPELESS_PAIRS = 1 / 3, 2


class Verdict(Enum):
    """What the ratios say of a candidate."""

    BETTER = "better"
    NO_BETTER = "no better"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Interval:
    """The median of ratios, and bounds between which that of all ratios lies with 95 % confidence: 0 and infinity where
    there are fewer than six."""

    low: float
    median: float
    high: float

    @staticmethod
    def of(ratios: Sequence[float]) -> Interval:
        """That of one ratio or more."""
        return Interval(lower_bound(ratios, 0.025), statistics.median(ratios), upper_bound(ratios, 0.025))


def verdict(ratios: Sequence[float], margin: float = MARGIN) -> Verdict:
    """What is known after these pairs; before the next look nothing, and after the last one no candidate is better."""
    count = len(ratios)
    if count >= _HOPELESS_PAIRS and max(ratios) < _HOPELESS:
        return Verdict.NO_BETTER
    if count not in LOOKS:
        return Verdict.UNDECIDED
    if lower_bound(ratios, _FALSE_WIN) > margin:
        return Verdict.BETTER
    if upper_bound(ratios, _FALSE_LOSS) < margin or count == LOOKS[-1]:
        return Verdict.NO_BETTER
    return Verdict.UNDECIDED


def lower_bound(ratios: Sequence[float], error: float) -> float:
    """What the median of all ratios is above, but with the probability `error`; 0 if there are too few."""
    rank = _rank(len(ratios), error)
    return sorted(ratios)[rank - 1] if rank else 0.0


def upper_bound(ratios: Sequence[float], error: float) -> float:
    """What the median of all ratios is below, but with the probability `error`; infinity if there are too few."""
    rank = _rank(len(ratios), error)
    return sorted(ratios)[-rank] if rank else math.inf


def _rank(count: int, error: float) -> int:
    """The largest k such that the k-th smallest of `count` is above the median with the probability `error` at most."""
    rank, tail = 0, 0.0
    while rank < count:
        # Where the k-th smallest is above the median, at most k - 1 of them are below it.
        tail += math.comb(count, rank) / 2**count
        if tail > error:
            break
        rank += 1
    return rank
