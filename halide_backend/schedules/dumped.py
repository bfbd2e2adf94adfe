"""Schedule files of kernels as they are: what somebody starts from who wants to change a schedule."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from halide_backend.build.artifacts import worker_pool
from halide_backend.build.target import Target
from halide_backend.errors import ScheduleFileError
from halide_backend.kernel_records.journal import journal
from halide_backend.kernel_records.record import KernelRecord
from halide_backend.program import serialization
from halide_backend.program.loop_program import LoopProgram
from halide_backend.schedule.device import Device, device_of
from halide_backend.schedule.knobs import Choice
from halide_backend.schedule.plan import Plan
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.planning import entry_of, plan_entry
from halide_backend.schedules.schedule_file import Comments, write

_ORIGIN = "dumped"


@dataclass(frozen=True)
class DumpedKernel:
    """A kernel that a record holds the plan of."""

    name: str
    program: LoopProgram
    device: Device
    plan: Plan
    text: str
    lines: tuple[str, ...]


def dump(
    path: str | os.PathLike[str],
    records: Iterable[KernelRecord] | None = None,
    *,
    kernels: str = "*",
    with_steps: bool = False,
    replace: bool = False,
) -> tuple[ScheduleEntry, ...]:
    """Write the schedules of kernels to a file, with their loop nests and the meaning of each knob as comments.

    Args:
        path: the file.
        records: of the kernels; by default all of this process. Those from Inductor's caches have no plan and are left
            out, and so are those that this backend does not run.
        kernels: shell pattern of their names or digests.
        with_steps: whether to write all steps as well, instead of leaving them to the rules.
        replace: whether to replace a file that is there, edited perhaps.

    Returns:
        What was written, a kernel that occurs several times once.

    Raises:
        ScheduleFileError: the file is there, or cannot be written; or no record has a plan.
    """
    found = journal.records() if records is None else records
    return dump_documents(
        path, (record.to_json() for record in found), kernels=kernels, with_steps=with_steps, replace=replace
    )


def dump_documents(
    path: str | os.PathLike[str],
    documents: Iterable[Any],
    *,
    kernels: str = "*",
    with_steps: bool = False,
    replace: bool = False,
) -> tuple[ScheduleEntry, ...]:
    """`dump` of records that are JSON, as `KernelRecord.to_json` makes it.

    Raises:
        ScheduleFileError: see `dump`. ProgramError, IllegalPlan: a record of another version.
    """
    if not replace and os.path.lexists(path):
        raise ScheduleFileError(
            "it is there already", where=os.fspath(path), cure="choose another, or ask to replace it"
        )
    comments: dict[ScheduleEntry, Comments] = {}
    names = []
    for kernel in planned_kernels(documents):
        names.append(kernel.name)
        if not fnmatch.fnmatch(kernel.name, kernels) and not serialization.digest(kernel.program).startswith(kernels):
            continue
        entry = entry_of(
            kernel.program, kernel.device, kernel.plan, origin=_ORIGIN, name=kernel.name, with_steps=with_steps
        )
        if not any(each.identity == entry.identity for each in comments):
            comments[entry] = _comments(kernel, entry)
    if not comments:
        cure = f"choose among {', '.join(names[:8])}" if names else "compile something, without Inductor's caches"
        raise ScheduleFileError(f"there is no kernel {kernels!r} to dump", where=os.fspath(path), cure=cure)
    write(path, comments, comments)
    return tuple(comments)


def planned_kernels(documents: Iterable[Any]) -> Iterable[DumpedKernel]:
    """The kernels of records that have programs and plans.

    Raises:
        ProgramError, IllegalPlan: a record of another version.
    """
    for document in documents:
        if not isinstance(document, Mapping) or not all(document.get(key) for key in ("program", "plan", "target")):
            continue
        position = document.get("position", 0)
        name = str(document.get("name", ""))
        yield DumpedKernel(
            f"{name}.{position}" if position else name,
            serialization.from_json(document["program"]),
            device_of(Target.from_json(document["target"])),
            Plan.from_json(document["plan"]),
            str(document.get("text", "")),
            tuple(map(str, document.get("lines", ()))),
        )


def _comments(kernel: DumpedKernel, entry: ScheduleEntry) -> Comments:
    planned = plan_entry(kernel.program, kernel.device, entry)
    nest = worker_pool(0).loop_nest(planned.text, kernel.name)
    loops = [line for line in nest.rstrip().splitlines() if line.strip()]
    return Comments(
        (kernel.name, *(f"computes {line}" for line in kernel.lines), "", "Its loops:", *loops),
        tuple((choice.key, _described(choice)) for choice in planned.plan.choices),
        tuple(map(repr, planned.plan.steps)),
    )


def _described(choice: Choice) -> str:
    values = dict.fromkeys((*choice.knob.values, choice.rule))
    shown = ", ".join(str(value).lower() if isinstance(value, bool) else repr(value) for value in values)
    rule = str(choice.rule).lower() if isinstance(choice.rule, bool) else repr(choice.rule)
    return f"{choice.knob.meaning}: one of {shown}. The rules choose {rule}: {choice.why}"
