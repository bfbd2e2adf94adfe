"""Which schedule a kernel gets: a user's, a tuned one, or that of the rules."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.errors import HalideBackendError, IllegalPlan, ScheduleError, Unsupported
from halide_backend.program.loop_program import LoopProgram
from halide_backend.program.serialization import digest
from halide_backend.schedule.device import Cpu, Device
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.packaged import packaged_schedules, packaged_state
from halide_backend.schedules.planning import plan_entry
from halide_backend.schedules.size_class import fits, size_class
from halide_backend.schedules.thread_class import thread_class
from halide_backend.schedules.tuned_store import tuned_store
from halide_backend.schedules.usage import usage
from halide_backend.schedules.user_files import contents_of, entries_of, files_in
from halide_backend.schedules.user_function import plan_by_function, source_of


@dataclass(frozen=True)
class Sources:
    """Where schedules are looked for, in this order; see the options of these names in `halide_backend.config`.

    Attributes:
        function: `schedule_function`. files: `schedule_files`. folder: `schedule_folder`.
        tuned: whether tuned schedules are used, those of this machine before those of the package; `tune`.
        threads: of torch, with which kernels on a CPU run; 1 or more.
    """

    function: str = ""
    files: tuple[str, ...] = ()
    folder: str = ""
    tuned: bool = True
    threads: int = 1

    def state(self) -> str:
        """A digest of every schedule that could apply now; it changes whenever one of them does."""
        files = contents_of(self.paths())
        tuned = (tuned_store().state(), packaged_state()) if self.tuned else ()
        threads = str(thread_class(self.threads)) if files or any(tuned) else ""
        parts = (self.function and source_of(self.function), files, repr(tuned), threads)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def paths(self) -> tuple[str, ...]:
        """The files, and those in the folder."""
        return *self.files, *files_in(self.folder)

    def note(self, kernel: str, device: Device) -> None:
        """Note that `kernel` for `device` was compiled or loaded with these sources.

        Raises:
            ScheduleFileError: a file cannot be read.
        """
        if paths := self.paths():
            named, beside = paths[: len(self.files)], paths[len(self.files) :]
            usage.looked_through(kernel, self._for(device, named), self._for(device, beside))

    def entries(self, device: Device) -> Iterator[ScheduleEntry]:
        """The entries of all files that are for `device`, in order.

        Raises:
            ScheduleFileError: a file cannot be read.
        """
        return self._for(device, self.paths())

    def _for(self, device: Device, paths: Iterable[str]) -> Iterator[ScheduleEntry]:
        return (entry for path in paths for entry in entries_of(path) if entry.is_for(device, self.threads))


@dataclass(frozen=True)
class ScheduledKernel:
    """A kernel with its schedule.

    Attributes:
        kernel: planned as the schedule says.
        schedule: where it comes from: "fast.toml, line 12, kernel softmax_0: edited"; "" for the rules.
        identity: `ScheduleEntry.identity` of a user's entry, else "".
        asked: whether a user asked for it, so that nothing else may take its place in silence.
        rules: the kernel of the rules; None if `kernel` is that, or they have no legal schedule.
    """

    kernel: PlannedKernel
    schedule: str = ""
    identity: str = ""
    asked: bool = False
    rules: PlannedKernel | None = None


def schedule_kernel(program: LoopProgram, device: Device, name: str, sources: Sources) -> ScheduledKernel:
    """Plan `program`, which becomes the kernel `name`, for `device`, with its first schedule in `sources`.

    A tuned schedule that no longer fits is left out with a warning.

    Raises:
        ScheduleError: a schedule of the user's is illegal, or a file or function fails.
        Unsupported: the program has no Halide form on this device, or no legal schedule.
    """
    sources.note(name, device)
    rules, refusal = _rules(program, device)
    found = _users(program, device, sources, refusal) or _tuned(program, device, sources)
    if found is None:
        if refusal is not None:
            raise refusal
        assert rules is not None
        return ScheduledKernel(rules)
    return found if rules is None else _beside(found, rules)


def _rules(program: LoopProgram, device: Device) -> tuple[PlannedKernel | None, Unsupported | None]:
    try:
        return plan_kernel(program, device), None
    except Unsupported as refusal:
        return None, refusal


def _beside(found: ScheduledKernel, rules: PlannedKernel) -> ScheduledKernel:
    same = found.kernel.text == rules.text
    return ScheduledKernel(found.kernel, found.schedule, found.identity, found.asked, None if same else rules)


def _users(
    program: LoopProgram, device: Device, sources: Sources, refusal: Unsupported | None
) -> ScheduledKernel | None:
    if sources.function and (plan := plan_by_function(sources.function, program, device)) is not None:
        title = f"schedule function {sources.function}"
        try:
            return ScheduledKernel(plan_kernel(program, device, plan=plan), title, asked=True)
        except (IllegalPlan, Unsupported) as error:
            raise _not_used(title, error) from error
    entry = _first_fitting(sources.entries(device), program)
    if entry is None:
        return None
    usage.used(entry.identity)
    try:
        return ScheduledKernel(plan_entry(program, device, entry), _described(entry), entry.identity, asked=True)
    except (IllegalPlan, Unsupported) as error:
        if refusal is not None and isinstance(error, Unsupported):
            raise refusal from error
        raise _not_used(entry.title, error) from error


def _tuned(program: LoopProgram, device: Device, sources: Sources) -> ScheduledKernel | None:
    if not sources.tuned:
        return None
    key = digest(program)
    stored = _stored(key, program, device, sources.threads)
    try:
        known = packaged_schedules(device.classes).get(key, ())
        packaged = _first_fitting((entry for entry in known if entry.is_for(device, sources.threads)), program)
    except HalideBackendError as error:
        usage.warn_once(error.where, f"tuned schedules of this package are left out: {error}")
        packaged = None
    for entry, where in ((stored, "tuned here"), (packaged, "packaged")):
        if entry is None:
            continue
        try:
            return ScheduledKernel(plan_entry(program, device, entry), f"{where}, {_described(entry)}")
        except (IllegalPlan, Unsupported) as error:
            what = f"{where}, {entry.title}: this schedule no longer fits and is left out: {error}"
            usage.warn_once(f"{where} {entry.identity}", what)
    return None


def _stored(key: str, program: LoopProgram, device: Device, threads: int) -> ScheduleEntry | None:
    """What this machine's store has for the narrowest class."""
    sizes = size_class(program)
    numbers = (thread_class(threads), None) if isinstance(device, Cpu) else (None,)
    found = (tuned_store().find(key, name, sizes, number) for name in device.classes for number in numbers)
    return next(filter(None, found), None)


def _first_fitting(entries: Iterable[ScheduleEntry], program: LoopProgram) -> ScheduleEntry | None:
    key = digest(program)
    return next((entry for entry in entries if entry.program == key and fits(entry.sizes, program)), None)


def _described(entry: ScheduleEntry) -> str:
    return f"{entry.title}: {entry.origin}" if entry.origin else entry.title


def _not_used(title: str, error: HalideBackendError) -> ScheduleError:
    what = f"{error.where}: {error.what}" if error.where else error.what
    return ScheduleError(what, where=title, cure=error.cure)
