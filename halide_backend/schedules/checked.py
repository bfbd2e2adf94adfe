"""What becomes of the schedules of a file with the kernels of a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan, Unsupported
from halide_backend.program.serialization import digest
from halide_backend.schedules.dumped import DumpedKernel
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.planning import plan_entry
from halide_backend.schedules.size_class import fits


@dataclass(frozen=True)
class Finding:
    """Whether a kernel has the schedule `entry`, and it is legal (`fine`); `what` says it in words."""

    entry: ScheduleEntry
    fine: bool
    what: str


def check_entry(entry: ScheduleEntry, kernels: Iterable[DumpedKernel]) -> Finding:
    """What becomes of `entry` with these kernels."""
    for kernel in kernels:
        same = digest(kernel.program) == entry.program and entry.device in kernel.device.classes
        if same and fits(entry.sizes, kernel.program):
            return _planned(entry, kernel)
    return Finding(entry, False, "no kernel of the program has this schedule")


def _planned(entry: ScheduleEntry, kernel: DumpedKernel) -> Finding:
    try:
        found = plan_entry(kernel.program, kernel.device, entry)
    except (IllegalPlan, Unsupported) as error:
        return Finding(entry, False, f"refused: {error}")
    try:
        rules = plan_kernel(kernel.program, kernel.device).text
    except Unsupported:
        rules = ""
    return Finding(entry, True, "legal, and what the rules choose" if found.text == rules else "legal")
