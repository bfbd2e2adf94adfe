"""What is known of settings without having tried them, on the trials of a log: bounds for the strategies.

    python benchmarks/strategy_bounds.py LOG...

It prints trials over those of random search until one has 95 % of the best certain gain, as `halide-backend tune
--compare-strategies` counts them, for orders in which settings might be tried:

- near: by their measured gains, so that the first trial is the one. No strategy needs fewer.
- own sums: by sums of an effect of each knob's value, fitted to all trials of the same kernel. What a model without
  interactions of knobs would do if it knew everything beforehand.
- others' means: by sums of the mean effects that each knob's value has in all other kernels. What a kernel's own
  settings cannot tell before its first trial.
- other half: the same, of the half of the kernels that this one does not belong to.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from halide_backend.tune import comparison, trial_log
from halide_backend.tune.trial import Trial

#: Settings of equal value are tried in this many random orders.
_ORDERS = 200

#: A ridge, for settings that always occur together. Least gain whose logarithm is taken.
_RIDGE, _LEAST = 1e-2, 0.2

Effects = Mapping[tuple[str, str], float]


def main() -> None:
    for source in sys.argv[1:]:
        recorded = trial_log.read(Path(source))
        known = {digest: comparison._trials(recorded, digest) for digest in recorded.programs}
        programs = [digest for digest, trials in known.items() if comparison._says_something(trials)]
        found = {digest: _counts(digest, known) for digest in programs}
        print(f"{Path(source).name}: {len(found)} kernels")
        chance = {digest: counts["random"] for digest, counts in found.items()}
        print(f"  random search {statistics.fmean(chance.values()):.1f} trials; ratios of sums, held back, of means")
        for name in ("near", "own sums", "others' means", "other half"):
            counts = {digest: each[name] for digest, each in found.items()}
            back = {digest for digest in counts if _half(digest) == 0}
            ratios = _ratio(counts, chance), _ratio(counts, chance, back), _mean(counts, chance)
            print(f"  {name:14} " + " ".join(f"{ratio:.2f}" for ratio in ratios))
        hardest = sorted(chance.values())[-5:]
        alone = sum(each["good"] == 1 for each in found.values())
        print(f"  five kernels have {sum(hardest) / sum(chance.values()):.2f} of random search's trials")
        print(f"  {alone} kernels have one trial that is near the best")


def _counts(digest: str, known: Mapping[str, Sequence[Trial]]) -> dict[str, float]:
    """Trials of each order until one is near the best; `good` trials are."""
    trials = [trial for trial in known[digest] if trial.settings]
    goal = 1 + comparison.NEAR * (comparison._best(known[digest]) - 1)
    gains = np.array([trial.gain if trial.measured else 0.0 for trial in trials])
    near, logs = gains >= goal, np.log(np.maximum(gains, _LEAST))
    keys = sorted({pair for trial in trials for pair in _values(trial)})
    table = np.array([[float(key in _values(trial)) for key in keys] + [1.0] for trial in trials])
    weights = np.linalg.solve(table.T @ table + _RIDGE * np.eye(len(keys) + 1), table.T @ logs)
    others = _effects({each: trials for each, trials in known.items() if each != digest})
    half = _effects({each: trials for each, trials in known.items() if _half(each) != _half(digest)})
    return {
        "random": (len(trials) + 1) / (near.sum() + 1),
        "good": float(near.sum()),
        "near": 1.0,
        "own sums": _first(table @ weights, near),
        "others' means": _first(np.array([_sum(trial, others) for trial in trials]), near),
        "other half": _first(np.array([_sum(trial, half) for trial in trials]), near),
    }


def _values(trial: Trial) -> set[tuple[str, str]]:
    return {(key, str(setting)) for key, setting in trial.chosen}


def _effects(known: Mapping[str, Sequence[Trial]]) -> Effects:
    """By knob, without its Func, and value: the mean logarithm of the gain beyond that of the kernel's other trials."""
    found = defaultdict[tuple[str, str], list[float]](list)
    for trials in known.values():
        logs = [(trial, math.log(trial.gain)) for trial in trials if trial.measured and trial.gain > 0]
        if logs:
            mean = statistics.fmean(gain for _, gain in logs)
            for trial, gain in logs:
                for key, value in _values(trial):
                    found[key.partition("@")[0], value].append(gain - mean)
    return {key: statistics.fmean(gains) for key, gains in found.items() if len(gains) >= 5}


def _sum(trial: Trial, effects: Effects) -> float:
    return sum(effects.get((key.partition("@")[0], value), 0.0) for key, value in _values(trial))


def _first(scores: np.ndarray, near: np.ndarray) -> float:
    """The place of the first trial near the best, mean of orders in which equal ones are shuffled."""
    source = np.random.default_rng(0)
    orders = [np.lexsort((source.random(len(scores)), -np.round(scores, 9))) for _ in range(_ORDERS)]
    return statistics.fmean(int(np.argmax(near[order])) + 1 for order in orders)


def _half(digest: str) -> int:
    return int(digest[:8], 16) % 2


def _ratio(counts: Mapping[str, float], chance: Mapping[str, float], chosen: set[str] | None = None) -> float:
    programs = counts.keys() if chosen is None else chosen
    return sum(counts[each] for each in programs) / sum(chance[each] for each in programs)


def _mean(counts: Mapping[str, float], chance: Mapping[str, float]) -> float:
    return math.exp(statistics.fmean(math.log(counts[each] / chance[each]) for each in counts))


if __name__ == "__main__":
    main()
