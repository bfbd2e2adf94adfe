"""Which kernel the next trials should go to: what it can still save, and how likely a trial is to save some of it."""

from __future__ import annotations

import math
import statistics
from functools import cached_property
from typing import TYPE_CHECKING

from halide_backend.build.target import Target
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Cpu, Device
from halide_backend.tune.typical_sizes import operand_bytes

if TYPE_CHECKING:
    from halide_backend.bench.roofline import Roofline
    from halide_backend.tune.tuner import Tuner

#: Least that a kernel can save, as a part of its time: what looks like its floor may be that of another processor.
_LEAST_SAVED = 0.05

#: Samples of a trial at least, and seconds of one at least.
_SAMPLES, _SAMPLE_S = 10, 0.0025


class Floors:
    """The least time of kernels on this machine: that of moving their bytes, by loops that were timed here on a CPU, or
    at the nominal bandwidth of a GPU."""

    def __init__(self, device: Device, target: Target, threads: int) -> None:
        self._device = device
        self._target = target
        self._threads = threads
        self._known: dict[LoopProgram, float] = {}

    def seconds(self, program: LoopProgram) -> float:
        """Of a call of the program."""
        known = self._known.get(program)
        if known is None:
            size = operand_bytes(program)
            rate = self._roofline.bandwidth(size) if isinstance(self._device, Cpu) else self._device.bandwidth
            known = self._known[program] = size / rate
        return known

    @cached_property
    def _roofline(self) -> Roofline:
        from halide_backend.bench.roofline import Roofline

        return Roofline(self._target, self._threads)


def promise(tuner: Tuner, floors: Floors, *, equally: bool) -> float:
    """What a second of trials of this kernel can be expected to save, as far as kernels compare.

    What it can save is its distance from its floor: seconds of all its calls, or the logarithm of a factor where all
    kernels count `equally`. The best of n trials is one of the n with equal probability, if they are drawn by chance:
    so the next one is the best with the probability 1 / n, counted since the last success, after which a search is
    somewhere else.
    """
    now = tuner.seconds / tuner.history.gain
    floor = min(floors.seconds(tuner.kernel.program), now)
    if equally:
        saved = max(math.log(now / floor), _LEAST_SAVED) if floor else 1.0
    else:
        saved = max(now - floor, _LEAST_SAVED * now) * tuner.kernel.count
    compiling = statistics.fmean(trial.compile_seconds for trial in tuner.history.trials)
    trial_seconds = compiling + _SAMPLES * max(now, _SAMPLE_S)
    return saved / (1 + tuner.history.fruitless) / trial_seconds
