"""Candidates that are wrong, hang, crash or take all memory: recorded with the reason, never chosen, limits kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from bad_kernels import OUTCOMES, sabotaged

from halide_backend.build.target import Target
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device
from halide_backend.tune.compilation import Compilation
from halide_backend.tune.measurement.measurer import Measurer
from halide_backend.tune.search.history import History
from halide_backend.tune.space import RULES, Settings, Space
from halide_backend.tune.trial import Outcome, Trial
from halide_backend.tune.tunable_kernel import TunableKernel
from halide_backend.tune.tuner import Conditions, Tuner

Made = Callable[..., LoopProgram]

#: Seconds for each part of a contest, and for a compilation.
LIMIT = 1.0


class InTurn:
    """Proposes settings that stand for sabotaged texts, in order."""

    name = "in turn"

    def __init__(self, count: int) -> None:
        self.left = [(("bad", number),) for number in range(count)]

    def propose(self, history: History) -> Settings | None:
        return self.left.pop(0) if self.left else None

    def told(self, trial: Trial) -> None:
        pass


class BadSpace(Space):
    """Its settings are numbers of sabotaged texts."""

    ways: list[str]

    def kernel(self, settings: Settings) -> Any:
        good = super().kernel(RULES)
        if settings == RULES:
            return good
        ((_, number),) = settings
        return replace(good, text=sabotaged(good.text, self.ways[int(number)], int(number)))


@pytest.fixture
def measurer() -> Iterator[Measurer]:
    with Measurer(time_limit=LIMIT) as made:
        yield made


def trials_of(ways: list[str], program: LoopProgram, device: Device, measurer: Measurer) -> tuple[Tuner, list[float]]:
    """Tune with nothing but bad candidates; the tuner, and the seconds of each trial."""
    space = BadSpace(program, device)
    space.ways = ways
    seconds = []
    with Compilation(Target.host(), workers=1, time_limit=LIMIT, memory_limit_mb=2048) as compilation:
        tuner = Tuner(
            TunableKernel("doubled", program), space, InTurn(len(ways)), measurer, compilation, Conditions(device.name)
        )
        while True:
            begin = time.monotonic()
            tuner.step()
            if tuner.exhausted:
                return tuner, seconds
            seconds.append(time.monotonic() - begin)


@pytest.mark.parametrize("how", OUTCOMES)
def test_a_bad_candidate_is_recorded_and_not_chosen(
    how: str, doubled: Made, device: Device, measurer: Measurer
) -> None:
    tuner, _ = trials_of([how], doubled(), device, measurer)
    baseline, trial = tuner.history.trials
    assert baseline.settings == RULES and baseline.measured
    assert trial.outcome is OUTCOMES[how], trial.reason
    assert trial.reason and not trial.won and not trial.samples
    assert tuner.history.best == RULES and tuner.confirmed() is None


def test_the_reason_says_what_was_wrong(doubled: Made, device: Device, measurer: Measurer) -> None:
    tuner, _ = trials_of(["often right", "endless", "no kernel"], doubled(), device, measurer)
    reasons = [trial.reason for trial in tuner.history.trials[1:]]
    assert "out_ptr0: 1 of 1000 elements differ from the rules' kernel, the first at 997" in reasons[0]
    assert reasons[1] == "it takes longer than the limit of 1 s"
    assert "ValueError: nothing" in reasons[2]


def test_a_good_candidate_among_bad_ones_is_measured(doubled: Made, device: Device, measurer: Measurer) -> None:
    program = doubled()
    kernel = TunableKernel("doubled", program)
    good = plan_kernel(program, device).text

    class Mixed(BadSpace):
        def kernel(self, settings: Settings) -> Any:
            if settings == (("bad", 2),):
                return replace(super().kernel(RULES), text=f"{good}\n# another text of the same kernel\n")
            return super().kernel(settings)

    mixed = Mixed(program, device)
    mixed.ways = ["crash", "greedy", "-", "wrong"]
    with Compilation(Target.host(), workers=2) as compilation:
        tuner = Tuner(kernel, mixed, InTurn(4), measurer, compilation, Conditions(device.name))
        while not tuner.exhausted:
            tuner.step()
    assert [trial.outcome for trial in tuner.history.trials[1:]] == [
        Outcome.CRASHED,
        Outcome.MEMORY,
        Outcome.MEASURED,
        Outcome.WRONG,
    ]


@pytest.mark.long
@pytest.mark.parametrize("how", ["wrong", "endless", "crash", "greedy"])
def test_a_hundred_of_each_kind(how: str, doubled: Made, device: Device, measurer: Measurer) -> None:
    this = os.getpid()
    tuner, seconds = trials_of([how] * 100, doubled(), device, measurer)
    bad = tuner.history.trials[1:]
    assert len(bad) == 100 and {trial.outcome for trial in bad} == {OUTCOMES[how]}
    assert tuner.history.best == RULES and not any(trial.won for trial in bad)
    assert os.getpid() == this
    # A part of a contest may take LIMIT, and its process is gone a second later; the next one has to make operands.
    assert max(seconds) <= LIMIT + 1
