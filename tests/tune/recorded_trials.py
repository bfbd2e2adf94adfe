"""Trials of a made-up kernel, all of its settings: its gain is known for each."""

from __future__ import annotations

import itertools
import math
from typing import Any

from halide_backend.program.loop_program import LoopProgram
from halide_backend.program.serialization import digest
from halide_backend.tune.search.history import History
from halide_backend.tune.search.proposer import Proposer
from halide_backend.tune.space import Settings
from halide_backend.tune.trial import Outcome, Trial

#: Knob -> its values and the rule's.
KNOBS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "parallel.threads": ((False, True), True),
    "transposes.side": ((4, 8, 16), 8),
    "column_blocks.columns": ((128, 256, 512, 1024, 2048), 512),
    "vector_reduction.accumulators": ((1, 2, 4, 8), 4),
}


def gain(chosen: dict[str, Any]) -> float:
    """Smooth but for the side of tiles; 1 for the rules, at most 1.5, for 256 columns, 8 accumulators, a side of 16."""
    columns = abs(math.log2(chosen["column_blocks.columns"]) - 8) * 0.1
    accumulators = abs(math.log2(chosen["vector_reduction.accumulators"]) - 3) * 0.1
    side = {4: 0.5, 8: 0.3, 16: 0.0}[chosen["transposes.side"]]
    return 1.5 - columns - accumulators - side if chosen["parallel.threads"] else 0.4


def trials(program: LoopProgram, device: str = "made-up") -> list[Trial]:
    """Every setting once."""
    found = []
    for values in itertools.product(*(values for values, _ in KNOBS.values())):
        chosen = dict(zip(KNOBS, values))
        settings = tuple(sorted((key, value) for key, value in chosen.items() if value != KNOBS[key][1]))
        outcome = (
            Outcome.CRASHED if chosen["transposes.side"] == 4 and not chosen["parallel.threads"] else Outcome.MEASURED
        )
        found.append(
            Trial(
                digest(program),
                device,
                settings,
                outcome,
                chosen=tuple(chosen.items()),
                gain=gain(chosen) if outcome is Outcome.MEASURED else 0.0,
                low=gain(chosen) if outcome is Outcome.MEASURED else 0.0,
            )
        )
    return found


def search(
    proposer: Proposer, history: History, recorded: dict[Settings, Trial], steps: int, enough: float = math.inf
) -> list[Settings]:
    """What the strategy proposes, told what is recorded, until a trial gains enough."""
    proposed = []
    for _ in range(steps):
        settings = proposer.propose(history)
        if settings is None:
            break
        assert history.is_new(settings)
        proposed.append(settings)
        trial = recorded[settings]
        history.add(trial)
        proposer.told(trial)
        if trial.gain >= enough:
            break
    return proposed
