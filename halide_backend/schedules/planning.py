"""Plans from entries, and entries from plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from halide_backend.codegen.planned_kernel import PlannedKernel, plan_kernel
from halide_backend.errors import IllegalPlan, UnusedKnob
from halide_backend.program.loop_program import LoopProgram
from halide_backend.program.serialization import digest
from halide_backend.schedule.device import Device
from halide_backend.schedule.knobs import Choices, Setting
from halide_backend.schedule.mapping.choose import choose_mapping
from halide_backend.schedule.mapping.mapping import Mapping as KernelMapping
from halide_backend.schedule.mapping.prepared import prepared
from halide_backend.schedule.plan import Plan
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.size_class import fits, size_class

T = TypeVar("T")


def plan_entry(program: LoopProgram, device: Device, entry: ScheduleEntry) -> PlannedKernel:
    """Plan `program` for `device` as `entry` says.

    Raises:
        IllegalPlan: the entry is for another program or device, or would give another result, or none.
        Unsupported: the program has no Halide form on this device, or none with these knobs.
    """
    check_is_for(program, device, entry)
    if entry.steps is None:
        return _with_needed(lambda knobs: plan_kernel(program, device, knobs), dict(entry.knobs), program, device)
    mapping, choices = _with_needed(lambda knobs: _mapping(program, device, knobs), dict(entry.knobs), program, device)
    funcs = tuple((mapping.roles | dict(entry.funcs)).items())
    plan = Plan(replace(mapping, funcs=funcs), entry.steps, choices.made, choices.settings)
    return plan_kernel(program, device, plan=plan)


def _with_needed(
    make: Callable[[Mapping[str, Setting]], T], knobs: Mapping[str, Setting], program: LoopProgram, device: Device
) -> T:
    """What `make` makes of `knobs` without those that nobody asks for because of the others: whoever edits a line of a
    file that lists all knobs as the rules set them need not know which these are.
    """
    try:
        return make(knobs)
    except UnusedKnob as error:
        rules = dict(plan_kernel(program, device).plan.knobs)
        if error.where not in knobs or rules.get(error.where) != knobs[error.where]:
            raise
        needed = {key: setting for key, setting in knobs.items() if key != error.where}
    return _with_needed(make, needed, program, device)


def _mapping(program: LoopProgram, device: Device, knobs: Mapping[str, Setting]) -> tuple[KernelMapping, Choices]:
    choices = Choices(knobs)
    mapping = choose_mapping(prepared(program, device), device, choices)
    try:
        choices.check_all_used()
    except UnusedKnob as error:
        raise UnusedKnob(
            "this knob chooses steps, if anything, and the entry has its own; only knobs of the mapping count",
            where=error.where,
            cure="leave the knob out, or the steps",
        ) from None
    return mapping, choices


def check_is_for(program: LoopProgram, device: Device, entry: ScheduleEntry) -> None:
    """Make sure that `entry` is for `program` on `device`.

    Raises:
        IllegalPlan: it is for others.
    """
    if entry.program != digest(program):
        raise IllegalPlan(
            f"it is for the program {entry.program[:12]}, and this one is {digest(program)[:12]}",
            where="program",
            cure="dump the schedule of this kernel",
        )
    if entry.device not in device.classes:
        raise IllegalPlan(
            f"it is for {entry.device}, and this device is {device.name}",
            where="device",
            cure="dump the schedule on such a device",
        )
    if not fits(entry.sizes, program):
        raise IllegalPlan(
            "the typical lengths of the program are outside of its sizes", where="sizes", cure="leave out sizes"
        )


def entry_of(
    program: LoopProgram, device: Device, plan: Plan, *, origin: str = "", name: str = "", with_steps: bool = False
) -> ScheduleEntry:
    """The entry that makes `plan` of `program` for the widest class of `device`, in the size class of the program:
    settings of knobs where these are enough and steps are not wanted, else steps.

    Raises:
        IllegalPlan: the plan is not legal for the program.
        Unsupported: the program has no Halide form on this device.
    """
    wide = device.classes[-1]
    entry = ScheduleEntry(digest(program), wide, plan.knobs, sizes=size_class(program), origin=origin, name=name)
    if not with_steps and _makes(program, device, entry, plan):
        return entry
    choices = Choices(dict(plan.knobs))
    rules = choose_mapping(prepared(program, device), device, choices)
    funcs = tuple((position, role) for position, role in plan.mapping.funcs if rules.roles.get(position) is not role)
    entry = replace(entry, knobs=choices.settings, steps=plan.steps, funcs=funcs)
    plan_entry(program, device, entry)
    return entry


def _makes(program: LoopProgram, device: Device, entry: ScheduleEntry, plan: Plan) -> bool:
    try:
        made = plan_entry(program, device, entry).plan
    except IllegalPlan:
        return False
    return made.steps == plan.steps and made.mapping == plan.mapping
