"""The strategies by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from halide_backend.tune.search.cost_model import CostModel
from halide_backend.tune.search.features import Features
from halide_backend.tune.search.forest import Forest
from halide_backend.tune.search.hill_climb import HillClimb
from halide_backend.tune.search.proposer import Proposer
from halide_backend.tune.search.random_search import RandomSearch
from halide_backend.tune.search.tpe import TreeParzen
from halide_backend.tune.search.warm_start import Known, WarmStart


def strategy(
    name: str,
    features: Features,
    others: Sequence[Known] = (),
    *,
    seed: int = 0,
    warm: bool = True,
    forest: Forest | None = None,
) -> Proposer:
    """The strategy called `name`, one of `names.STRATEGIES`, for a program of these features.

    Args:
        others: what is known of other programs, as it grows; `warm` says whether their best settings are tried first.
        forest: what several strategies learn from, made of `others` where there is none.

    Raises:
        MissingExtra: it needs a package that is not installed.
    """
    made: dict[str, Callable[[], Proposer]] = {
        "hill-climb": lambda: HillClimb(seed),
        "random": lambda: RandomSearch(seed),
        "tpe": lambda: TreeParzen(seed),
        "model": lambda: CostModel(features, forest or Forest(others, seed), seed),
    }
    proposer = made[name]()
    return WarmStart(features, others, proposer) if warm else proposer
