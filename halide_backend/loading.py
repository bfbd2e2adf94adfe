"""What the generated code calls: kernel texts become callables of this process, or what a C++ wrapper calls.

A kernel that was compiled while this process generated the code, or that an earlier process stored, is only loaded.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from halide_backend.build.artifacts import Artifact, Build, get_or_batch, get_or_compile
from halide_backend.build.c_interface import c_function
from halide_backend.build.entry_names import entry_name, named
from halide_backend.build.loader import LoadedKernel, load_object
from halide_backend.build.target import Target
from halide_backend.device_type import CPU, device_type
from halide_backend.errors import HalideBackendError
from halide_backend.kernel_records.journal import Note, journal
from halide_backend.kernel_records.record import KernelRecord
from halide_backend.launch import launcher
from halide_backend.launch.enclosed import enclosed
from halide_backend.launch.first_call import FirstCall
from halide_backend.launch.freed_memory import keep_freed_memory
from halide_backend.pipeline import current_target, limits, schedule_sources
from halide_backend.schedule.device import device_of
from halide_backend.schedules.tuned_store import tuned_store
from halide_backend.schedules.usage import usage

if TYPE_CHECKING:
    import torch

log = logging.getLogger("halide_backend")


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
    schedule_sources().note(name, device_of(target))
    builds = [get_or_compile(text.lstrip("\n"), target, name=name, limits=limits()) for text, _ in pipelines]
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
    _keep_freed_memory(device)
    kernel = launcher.make_launcher(name, pipelines, arity)
    around_launch = device_type(device).around_launch
    return enclosed(kernel, around_launch) if around_launch else kernel


def _keep_freed_memory(device: torch.device | str) -> None:
    from halide_backend import config

    if device_type(device).name == CPU.name:
        keep_freed_memory(config.kept_memory_mb)


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
    _keep_freed_memory(device)
    target = current_target(device)
    schedule_sources().note(name, device_of(target))
    for number, (entry, padded) in enumerate(pipelines):
        text = padded.lstrip("\n")
        build = get_or_compile(text, target, name=name, limits=limits(), c_interface=True)
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
    builds = [get_or_compile(text.lstrip("\n"), target, name=name_of_rules, limits=limits()) for text in rules]

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


def _joined(
    pipelines: list[launcher.Pipeline], artifacts: list[Artifact], target: Target, name: str, notes: list[Note]
) -> list[launcher.Pipeline]:
    """The same pipelines, those that can as variants of one kernel."""
    from halide_backend.build.ptx.batching import JOINT

    try:
        image, variants = get_or_batch(artifacts, target, name=name, limits=limits())
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
