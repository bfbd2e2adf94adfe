"""Schedules that a person wrote or a search found: entries, the files they stand in, and where kernels find them.

    halide_backend.schedules.dump("fast.toml")                          what the kernels of this process have
    halide_backend.config.schedule_files = ("fast.toml",)               what kernels are compiled with from now on

docs/how-to/tune-a-kernel.md shows a session, docs/reference/schedule-files.md the format.
"""

from __future__ import annotations

from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.schedules.dumped import dump
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.schedule_file import read, write
from halide_backend.schedules.tuned_store import TunedStore, tuned_store

__all__ = ["ScheduleEntry", "TunedStore", "dump", "plan_kernel", "read", "tuned_store", "write"]
