"""Schedules of Halide's autoschedulers as candidates: what these are told of a kernel, and what comes of their text."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace

from halide_backend.codegen.planned_kernel import PlannedKernel
from halide_backend.errors import HalideBackendError, IllegalPlan
from halide_backend.schedule.autoscheduled import imported
from halide_backend.schedule.steps import Split
from halide_backend.tune.compilation import failed
from halide_backend.tune.measurement.measurer import Failed
from halide_backend.tune.space import Settings, steps_of, whole_schedule
from halide_backend.tune.trial import Outcome
from halide_backend.tune.typical_sizes import number

#: An integer argument of the user's function whose value nobody knows.
_DATA = 3


def asked(scheduler: str) -> Settings:
    """The settings under which it is recorded that an autoscheduler has made nothing of a kernel."""
    return (("autoscheduler", scheduler),)


def estimates(kernel: PlannedKernel) -> dict[str, tuple[int, ...]]:
    """Typical extents of outputs, innermost first, and of inputs, and values of sizes, by their names.

    Raises:
        NothingToTune: a size cannot be told from the program.
    """
    program = kernel.program
    extents = {stage.name: tuple(loop.extent for loop in stage.loops) for stage in kernel.stages.outputs}
    lengths = {buffer.name: (number(buffer.extent, program),) for buffer in program.inputs}
    sizes = {size.name: (_DATA if size.data else number(size.value, program),) for size in program.sizes}
    return {**extents, **lengths, **sizes}


def made(scheduler: str, answer: Future[str], kernel: PlannedKernel) -> Settings | Failed:
    """The schedule that an autoscheduler has made of `kernel`, or why there is none; it waits."""
    try:
        return whole_schedule(scheduler, imported(answer.result(), kernel.stages))
    except IllegalPlan as refusal:
        return Failed(Outcome.ILLEGAL, f"{refusal.where}: {refusal.what}")
    except HalideBackendError as error:
        return failed(error, "autoscheduling")


def variants(settings: Settings) -> Iterator[Settings]:
    """A whole schedule with the factor of one split halved or doubled; none of settings of knobs."""
    origin = settings[0][0].partition("@")[2] if settings else ""
    steps = steps_of(settings) or ()
    for place, step in enumerate(steps):
        if isinstance(step, Split):
            for factor in (step.factor * 2, step.factor // 2):
                if factor > 1:
                    changed = replace(step, factor=factor)
                    yield whole_schedule(origin, (*steps[:place], changed, *steps[place + 1 :]))
