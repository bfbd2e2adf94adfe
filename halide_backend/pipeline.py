"""The path of a kernel from Inductor's loops to a callable, through one layer after another.

    capture   scheduler nodes -> LoopProgram         halide_backend.capture.recording.Recordings
    plan      LoopProgram -> plan and kernel text    halide_backend.schedules.choice.schedule_kernel
    build     kernel text -> object (cached)         halide_backend.build.artifacts.get_or_compile
    launch    object -> callable                     halide_backend.launch.launcher.make_launcher

`compile_program` goes through the first three while Inductor generates code. That code begins with the kernel's text,
in this process or, from Inductor's own cache, in another one: `halide_backend.loading` goes the rest of the way.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from halide_backend.build.artifacts import Build, Limits, get_or_compile, worker_pool
from halide_backend.build.target import Target
from halide_backend.device_type import CPU, HOST, device_type
from halide_backend.errors import HalideBackendError, ScheduleError, Unsupported
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.schedule.plan import Plan
from halide_backend.schedules.choice import ScheduledKernel, Sources, schedule_kernel
from halide_backend.schedules.usage import usage

if TYPE_CHECKING:
    import torch

log = logging.getLogger("halide_backend")


@dataclass(frozen=True)
class Compilation:
    """A kernel that is being built: its plan, the text it is built from, and for which machine; the schedule that made
    it, if that is not the rules' own; and whether it is called through its C function. `others` are the same kernel for
    more demanding targets of a package, `variant` is the plan for calls with short sizes, if they have one.
    """

    plan: Plan
    text: str
    target: Target
    build: Build
    scheduled: ScheduledKernel | None = None
    c_interface: bool = False
    others: tuple[Compilation, ...] = ()
    variant: Plan | None = None

    @property
    def computes_twice(self) -> bool:
        """Whether some elements of an output are computed twice: its memory cannot be that of an input."""
        plans = (plan for each in (self, *self.others) for plan in (each.plan, each.variant) if plan is not None)
        return any(plan.computes_twice for plan in plans)

    def again(self) -> Compilation:
        """The same for another kernel of equal program, for which nothing has to be looked up."""
        return replace(self, build=replace(self.build, asked_before=True))

    def finished(self, name: str) -> Compilation:
        """The same when it is built, as the kernel `name`. If a tuned schedule cannot be built, the rules' kernel takes
        its place, with a warning.

        Raises:
            ScheduleError: a schedule of the user's cannot be built.
            HalideBackendError: the rules' kernel cannot be built.
        """
        if self.others:
            alone = replace(self, others=()).finished(name)
            return replace(alone, others=tuple(other.finished(name) for other in self.others))
        try:
            self.build.artifact.result()
            return self
        except HalideBackendError as error:
            scheduled = self.scheduled
            if scheduled is None or (scheduled.rules is None and not scheduled.asked):
                raise
            if scheduled.asked:
                raise ScheduleError(str(error), where=scheduled.schedule, cure="choose another schedule") from error
            assert scheduled.rules is not None
            usage.warn_once(scheduled.schedule, f"{scheduled.schedule}: it cannot be built and is left out: {error}")
            rules = scheduled.rules
        build = get_or_compile(rules.text, self.target, name=name, limits=limits(), c_interface=self.c_interface)
        compilation = Compilation(rules.plan, rules.text, self.target, build, None, self.c_interface)
        return replace(compilation, variant=rules.variant).finished(name)


def compile_program(
    program: LoopProgram,
    name: str,
    device: torch.device,
    c_interface: bool = False,
    targets: Sequence[Target] = (),
) -> Compilation:
    """Write the kernel's text for `device` and ask for its artifact, with a C function or without; returns at once.

    `targets` are those of a package, the least demanding first; otherwise it is what this process runs on the device.

    Raises:
        ScheduleError: a schedule of the user's is illegal, or a file or function fails.
        Unsupported: the program has no Halide form, or no legal schedule.
    """
    first, *others = (
        _compilation(program, name, target, c_interface) for target in targets or (current_target(device),)
    )
    return replace(first, others=tuple(others))


def _compilation(program: LoopProgram, name: str, target: Target, c_interface: bool) -> Compilation:
    scheduled = schedule_kernel(program, device_of(target), name, schedule_sources())
    kernel = scheduled.kernel
    build = get_or_compile(kernel.text, target, name=name, limits=limits(), c_interface=c_interface)
    chosen = scheduled if scheduled.schedule else None
    return Compilation(kernel.plan, kernel.text, target, build, chosen, c_interface, variant=kernel.variant)


def is_by_rules(program: LoopProgram, name: str, target: Target) -> bool:
    """Whether the kernel has no other schedule than that of the rules, and it can be planned.

    Raises:
        ScheduleFileError: a file of schedules cannot be read.
    """
    with suppress(ScheduleError, Unsupported):
        return not schedule_kernel(program, device_of(target), name, schedule_sources()).schedule
    return False


def start_workers() -> None:
    """Let the compile worker start, should there be none, while Inductor still fuses what it will get; do not wait."""
    pool = worker_pool(limits().workers)
    pool.threads.submit(pool.start)


def build_ahead(text: str, name: str) -> None:
    """Let the kernel `name` for a CPU be built while Inductor goes on; code that loads it waits for what is left."""
    get_or_compile(text, current_target(CPU.name), name=name, limits=limits(), ahead=True)


def current_target(device: torch.device | str) -> Target:
    """What kernels for `device` are compiled for: what its device type says.

    Raises:
        Unsupported: the GPU is too old.
        UnsupportedVersionError: this machine cannot run what the option `target` or a registered device asks for.
    """
    from halide_backend import config

    kind = device_type(device)
    if not kind.on_host:
        import torch

        return Target.cuda(*torch.cuda.get_device_capability(device))
    target = Target.named(config.target if kind.target == HOST else kind.target)
    target.check_runs_here()
    return target


def limits() -> Limits:
    from halide_backend import config

    return Limits(config.compile_workers, config.compile_time_limit, config.compile_memory_limit_mb)


def schedule_sources() -> Sources:
    import torch

    from halide_backend import config

    return Sources(
        config.schedule_function,
        config.schedule_files,
        config.schedule_folder,
        config.tune != "never",
        torch.get_num_threads(),
    )
