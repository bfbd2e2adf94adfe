"""The path of a kernel from Inductor's loops to a callable, through one layer after another.

    capture   scheduler nodes -> LoopProgram         halide_backend.capture.recording.Recordings
    plan      LoopProgram -> plan and kernel text    halide_backend.schedules.choice.schedule_kernel
    build     kernel text -> object (cached)         halide_backend.build.artifacts.get_or_compile
    launch    object -> callable                     halide_backend.launch.launcher.make_launcher

`compile_program` runs while Inductor generates code; `load_kernel` is what the generated code calls, in this process
or, from Inductor's own cache, in another one: the kernel's text is all it has.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from halide_backend.build.artifacts import Artifact, Build, Limits, get_or_batch, get_or_compile, worker_pool
from halide_backend.build.c_interface import c_function
from halide_backend.build.entry_names import entry_name, named
from halide_backend.build.loader import LoadedKernel, load_object
from halide_backend.build.ptx.batching import JOINT
from halide_backend.build.target import Target
from halide_backend.device_type import CPU, HOST, device_type
from halide_backend.errors import HalideBackendError, ScheduleError, Unsupported
from halide_backend.kernel_records.journal import Note, journal
from halide_backend.kernel_records.record import KernelRecord
from halide_backend.launch import launcher
from halide_backend.launch.enclosed import enclosed
from halide_backend.launch.first_call import FirstCall
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import device_of
from halide_backend.schedule.plan import Plan
from halide_backend.schedules.choice import ScheduledKernel, Sources, schedule_kernel
from halide_backend.schedules.tuned_store import tuned_store
from halide_backend.schedules.usage import usage

if TYPE_CHECKING:
    import torch

log = logging.getLogger("halide_backend")


@dataclass(frozen=True)
class Compilation:
    """A kernel that is being built: its plan, the text it is built from, and for which machine; the schedule that made
    it, if that is not the rules' own; and whether it is called through its C function. `others` are the same kernel for
    more demanding targets of a package.
    """

    plan: Plan
    text: str
    target: Target
    build: Build
    scheduled: ScheduledKernel | None = None
    c_interface: bool = False
    others: tuple[Compilation, ...] = ()

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
        build = get_or_compile(rules.text, self.target, name=name, limits=_limits(), c_interface=self.c_interface)
        return Compilation(rules.plan, rules.text, self.target, build, None, self.c_interface).finished(name)


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
    scheduled = schedule_kernel(program, device_of(target), name, _sources())
    kernel = scheduled.kernel
    build = get_or_compile(kernel.text, target, name=name, limits=_limits(), c_interface=c_interface)
    chosen = scheduled if scheduled.schedule else None
    return Compilation(kernel.plan, kernel.text, target, build, chosen, c_interface)


def is_by_rules(program: LoopProgram, name: str, target: Target) -> bool:
    """Whether the kernel has no other schedule than that of the rules, and it can be planned.

    Raises:
        ScheduleFileError: a file of schedules cannot be read.
    """
    with suppress(ScheduleError, Unsupported):
        return not schedule_kernel(program, device_of(target), name, _sources()).schedule
    return False


def start_workers() -> None:
    """Let the compile worker start, should there be none, while Inductor still fuses what it will get; do not wait."""
    pool = worker_pool(_limits().workers)
    pool.threads.submit(pool.start)


def load_kernel(
    name: str,
    pipelines: Sequence[tuple[str, Sequence[int]]],
    arity: int,
    device: torch.device | str = CPU.name,
    together: bool = False,
    schedules: Mapping[int, tuple[str, str, str]] | None = None,
    written: Sequence[int] = (),
) -> Any:
    """The kernel `name` as a callable of `arity` arguments: tensors, and on a GPU the stream last.

    `pipelines` holds, for each Halide pipeline that one call runs, its text and which of the arguments it takes. All
    of them start to build at once; the first call waits for them. `together` says that none of them needs what another
    one makes: a GPU runs as many as it can in one launch. `schedules` has for each pipeline with a schedule of the
    user's its `ScheduleEntry.identity`, where it comes from, and the text that the rules write, "" if that is the same
    or there is none; `written` are the arguments that such a launch writes.
    """
    target = current_target(device)
    limits = _limits()
    _sources().note(name, device_of(target))
    builds = [get_or_compile(text.lstrip("\n"), target, name=name, limits=limits) for text, _ in pipelines]
    positions = [tuple(places) for _, places in pipelines]
    notes = [
        journal.loading(_loading(name, number, text.lstrip("\n"), target, device), build)
        for number, ((text, _), build) in enumerate(zip(pipelines, builds))
    ]

    def resolve() -> list[launcher.Pipeline]:
        built = [build.artifact.result() for build in builds]
        found = _linked(name, built, positions, notes)
        return _joined(found, built, target, name, notes) if together else found

    done = all(build.built is not None for build in builds)
    kernel = _launcher(name, resolve() if done else resolve, arity, device)
    texts = [text for text, _ in pipelines]
    return _checked(name, kernel, texts, positions, arity, device, schedules, written) if schedules else kernel


def _launcher(name: str, pipelines: Any, arity: int, device: torch.device | str) -> Callable[..., None]:
    """What the wrapper calls, in whatever the owner of the device encloses launches in."""
    kernel = launcher.make_launcher(name, pipelines, arity)
    around_launch = device_type(device).around_launch
    return enclosed(kernel, around_launch) if around_launch else kernel


@dataclass(frozen=True)
class _CFunction:
    """What a C++ wrapper of this process calls: which pipeline of a kernel, its artifact, and its note."""

    kernel: str
    position: int
    build: Build
    note: Note


#: By the names that C++ wrappers have for them, and those that were called, with what they launch on a GPU. A wrapper's
#: code stays in the process, so do they.
_c_functions: dict[str, _CFunction] = {}
_called_c_functions: dict[str, tuple[LoadedKernel, Any]] = {}


def load_c_functions(name: str, pipelines: Sequence[tuple[str, str]], device: torch.device | str = CPU.name) -> None:
    """Let the kernel `name` of a C++ wrapper find its pipelines, given as entries and texts: they start to build."""
    target = current_target(device)
    _sources().note(name, device_of(target))
    for number, (entry, padded) in enumerate(pipelines):
        text = padded.lstrip("\n")
        build = get_or_compile(text, target, name=name, limits=_limits(), c_interface=True)
        note = journal.loading(_loading(name, number, text, target, device), build)
        _c_functions.setdefault(entry, _CFunction(name, number, build, note))


def c_function_addresses(entry: str) -> tuple[int, int]:
    """Where the C function of a pipeline is in this process, and the image of what it launches on a GPU, 0 for none;
    waits until it is built.

    Raises:
        HalideBackendError: it cannot be built or loaded.
    """
    launcher.configure()
    if entry not in _called_c_functions:
        function = _c_functions[entry]
        artifact = function.build.artifact.result()
        code = load_object(artifact.object, c_function(artifact.entry), launcher.native().symbols())
        entries = artifact.manifest.get("entries", ())
        names = {called: entry_name(function.kernel, function.position + k) for k, called in enumerate(entries)}
        module = _gpu_module(artifact.image, names) if artifact.image else None
        _called_c_functions.setdefault(entry, (code, module))
        function.note.loaded([*names.values()] or [function.kernel])
    code, module = _called_c_functions[entry]
    return code.address, module.address if module else 0


def _checked(
    name: str,
    kernel: Any,
    texts: Sequence[str],
    positions: Sequence[tuple[int, ...]],
    arity: int,
    device: torch.device | str,
    schedules: Mapping[int, tuple[str, str, str]],
    written: Sequence[int],
) -> Any:
    """`kernel`, which compares itself with that of the rules when it is called first, unless that was done before."""
    from halide_backend import config

    for identity, _, _ in schedules.values():
        usage.used(identity)
    rules = list(texts)
    for number, (_, _, text) in schedules.items():
        rules[number] = text or texts[number]
    target = current_target(device)
    if not config.check_schedules or rules == list(texts):
        return kernel
    check = hashlib.sha256(json.dumps([target.to_json(), texts, rules]).encode()).hexdigest()
    if tuned_store().was_checked(check):
        return kernel
    name_of_rules = f"{name}_by_rules"
    builds = [get_or_compile(text.lstrip("\n"), target, name=name_of_rules, limits=_limits()) for text in rules]

    def resolve() -> list[launcher.Pipeline]:
        return _linked(name_of_rules, [build.artifact.result() for build in builds], positions)

    return FirstCall(
        name,
        ", ".join(title for _, title, _ in schedules.values()),
        kernel,
        _launcher(name_of_rules, resolve, arity, device),
        written,
        lambda: tuned_store().remember_checked(check),
    )


def _linked(
    name: str, artifacts: Sequence[Artifact], positions: Sequence[tuple[int, ...]], notes: Sequence[Note] = ()
) -> list[launcher.Pipeline]:
    """The artifacts in this process, under names that begin with `name`; told to their `notes`."""
    found, launches = [], 0
    for number, (artifact, places) in enumerate(zip(artifacts, positions)):
        entries = artifact.manifest.get("entries", ())
        names = [entry_name(name, launches + k) for k in range(len(entries))]
        found.append(loaded(artifact, places, dict(zip(entries, names))))
        launches += len(entries)
        if notes:
            notes[number].loaded(names or [name])
    return found


def _loading(name: str, position: int, text: str, target: Target, device: torch.device | str) -> KernelRecord:
    """What is known of a kernel that comes with a wrapper."""
    return KernelRecord(name, str(device), os.getpid(), position=position, captured=False, text=text, target=target)


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


def _limits() -> Limits:
    from halide_backend import config

    return Limits(config.compile_workers, config.compile_time_limit, config.compile_memory_limit_mb)


def _sources() -> Sources:
    import torch

    from halide_backend import config

    return Sources(
        config.schedule_function,
        config.schedule_files,
        config.schedule_folder,
        config.tune != "never",
        torch.get_num_threads(),
    )


def _joined(
    pipelines: list[launcher.Pipeline], artifacts: list[Artifact], target: Target, name: str, notes: list[Note]
) -> list[launcher.Pipeline]:
    """The same pipelines, those that can as variants of one kernel."""
    try:
        image, variants = get_or_batch(artifacts, target, name=name, limits=_limits())
    except HalideBackendError as refusal:
        log.warning("the pipelines of %s are launched one by one: %s", name, refusal)
        return pipelines
    module = _gpu_module(image, {JOINT: entry_name(name, JOINT)})
    for note, variant in zip(notes, variants):
        if variant >= 0:
            note.shown_as([entry_name(name, JOINT)])
    return [
        pipeline if variant < 0 else pipeline._replace(module=module, variant=variant)
        for pipeline, variant in zip(pipelines, variants)
    ]


def loaded(artifact: Artifact, positions: tuple[int, ...], entries: Mapping[str, str]) -> launcher.Pipeline:
    """The artifact in this process, whose launches `entries` maps to their names."""
    code: LoadedKernel = load_object(artifact.object, f"{artifact.entry}_argv", launcher.native().symbols())
    manifest = artifact.manifest
    return launcher.Pipeline(
        code.address,
        manifest["arguments"],
        positions,
        manifest["checks"],
        manifest["release_gil"],
        code,
        _gpu_module(artifact.image, entries) if artifact.image else None,
    )


def _gpu_module(image: bytes, entries: Mapping[str, str]) -> Any:
    """What runs on a GPU with names for its entries: `entries` maps those that the launching half calls to them."""
    pairs = "".join(f"{called}\0{shown}\0" for called, shown in entries.items())
    return launcher.native().CudaModule(named(image, tuple(entries.values())), pairs.encode())
