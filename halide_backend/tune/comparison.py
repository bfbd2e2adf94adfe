"""Strategies compared on recorded trials: how many trials each needs to come near the best that is known."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from halide_backend import terminal
from halide_backend.errors import MissingExtra, NothingToTune
from halide_backend.tune import trial_log
from halide_backend.tune.recorded_space import RecordedSpace
from halide_backend.tune.search.features import program_features
from halide_backend.tune.search.history import History
from halide_backend.tune.search.names import STRATEGIES
from halide_backend.tune.search.strategies import strategy
from halide_backend.tune.search.warm_start import Known
from halide_backend.tune.space import RULES
from halide_backend.tune.trial import Trial
from halide_backend.tune.trial_log import Recorded

#: A kernel says something about strategies if its best settings certainly gain this much and were not easy to meet by
#: chance.
_LEAST_GAIN, _LEAST_TRIALS = 1.03, 12

#: Near the best: this part of its gain. Seeds of each strategy; random search, against which all others are held, takes
#: so many times as many, because its trials vary most and cost least.
NEAR, SEEDS, _BY_CHANCE = 0.95, 10, 10

#: Draws of kernels with replacement, for an interval of 95 %.
_DRAWS, _OUTSIDE = 2000, 0.05


@dataclass(frozen=True)
class Comparison:
    """Of one strategy: the trials that it needed, by program, the mean of all seeds."""

    strategy: str
    trials: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Mean of all programs."""
        return statistics.fmean(self.trials.values())

    def against(self, other: Comparison, programs: Sequence[str] = ()) -> float:
        """Its trials over those of `other`, of the same `programs`, or of all."""
        chosen = programs or tuple(self.trials)
        return sum(self.trials[each] for each in chosen) / sum(other.trials[each] for each in chosen)

    def interval(self, other: Comparison) -> tuple[float, float]:
        """Of `against`, by the bootstrap: how far it depends on which kernels were recorded. The same every time."""
        source, programs = random.Random(0), sorted(self.trials)
        ratios = sorted(self.against(other, source.choices(programs, k=len(programs))) for _ in range(_DRAWS))
        outside = round(_DRAWS * _OUTSIDE / 2)
        return ratios[outside], ratios[-1 - outside]

    @property
    def held_back(self) -> tuple[str, ...]:
        """The half of the programs, by digest, that no constant of a strategy was chosen by."""
        return tuple(digest for digest in self.trials if int(digest[:8], 16) % 2 == 0)


def run(source: str, *, seed: int = 0) -> int:
    """Print the comparison on the log `source`.

    Raises:
        TrialLogError: it cannot be read. NothingToTune: no kernel of it has enough trials.
    """
    found = compare(trial_log.read(Path(source)), seed=seed)
    chance = next(each for each in found if each.strategy == "random")
    rows = [(each.strategy, f"{each.mean:.1f}", *_ratios(each, chance)) for each in found]
    kernels = len(found[0].trials)
    print(
        f"{kernels} kernels, {SEEDS} seeds each, {SEEDS * _BY_CHANCE} of random search: trials until {NEAR:.0%} of the "
        "best certain gain"
    )
    print(terminal.table(("strategy", "trials", "against\nrandom", "95 %\ninterval", "held\nback"), rows, "lrrrr"))
    for name in STRATEGIES:
        if all(each.strategy != name for each in found):
            print(f"{name} needs a package: pip install 'halide-backend[tune]'", file=sys.stderr)
    return 0


def compare(recorded: Recorded, *, seed: int = 0, seeds: int = SEEDS) -> list[Comparison]:
    """All strategies whose packages are installed, on all programs with enough trials; the same for the same log.

    Raises:
        NothingToTune: there is no such program.
    """
    # Where nothing is faster than the rules, a model learns that, too.
    known = {digest: _trials(recorded, digest) for digest in recorded.programs}
    programs = [digest for digest, trials in known.items() if _says_something(trials)]
    if not programs:
        raise NothingToTune(
            f"no kernel has {_LEAST_TRIALS} trials and a gain of {_LEAST_GAIN}",
            where="--compare-strategies",
            cure="record more: halide-backend tune ... --strategy random",
        )
    found = []
    for name in STRATEGIES:
        count = seeds * _BY_CHANCE if name == "random" else seeds
        try:
            needed = {
                digest: statistics.fmean(_needed(name, recorded, digest, known, seed + k) for k in range(count))
                for digest in programs
            }
        except MissingExtra:
            continue
        found.append(Comparison(name, needed))
    return found


def _ratios(each: Comparison, chance: Comparison) -> tuple[str, str, str]:
    low, high = each.interval(chance)
    held_back = f"{each.against(chance, each.held_back):.2f}" if each.held_back else ""
    return f"{each.against(chance):.2f}", f"{low:.2f} to {high:.2f}", held_back


def _trials(recorded: Recorded, digest: str) -> list[Trial]:
    """The trials of a program on the class of devices, and with the threads, that have most of them, each setting
    once."""
    places = [(trial.device, trial.threads) for trial in recorded.trials if trial.program == digest]
    most = max(set(places), key=lambda place: (places.count(place), place), default=("", 0))
    return list({trial.settings: trial for trial in recorded.of(digest, *most)}.values())


def _says_something(trials: Sequence[Trial]) -> bool:
    return len(trials) >= _LEAST_TRIALS and _best(trials) >= _LEAST_GAIN


def _best(trials: Sequence[Trial]) -> float:
    """The greatest gain that is certain: a bound of each trial's, since the greatest median of fifty may be luck."""
    gains = {trial.settings: trial.gain for trial in trials}
    return max((trial.low * gains.get(trial.against, 1.0) for trial in trials if trial.measured), default=0.0)


def _needed(name: str, recorded: Recorded, digest: str, known: Mapping[str, Sequence[Trial]], seed: int) -> int:
    """Trials of one program until the strategy, which knows those of all others, meets settings near its best."""
    trials = known[digest]
    others = [
        Known(program_features(recorded.programs[other]), found) for other, found in known.items() if other != digest
    ]
    # Warm starts would help all strategies alike: what is compared is what each does by itself.
    proposer = strategy(name, program_features(recorded.programs[digest]), others, seed=seed, warm=False)
    space = RecordedSpace(trials)
    history = History(space)
    if (rules := space.trials.get(RULES)) is not None:
        # Every search begins with it.
        proposer.told(rules)
    goal, count = 1 + NEAR * (_best(trials) - 1), 0
    while (settings := proposer.propose(history)) is not None:
        count += 1
        trial = space.trials[settings]
        ended = replace(trial, won=trial.measured and trial.gain > history.gain, against=RULES)
        history.add(ended)
        proposer.told(ended)
        if ended.measured and ended.gain >= goal:
            return count
    # It gave up before: as if it had tried everything.
    return len(trials)
