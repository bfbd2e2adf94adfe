"""ScheduleEntry: how the kernels of one program run on one class of devices, as a file or a search says it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from halide_backend.schedule.device import Device
from halide_backend.schedule.knobs import Setting
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import Step
from halide_backend.schedules.size_class import SizeRange
from halide_backend.schedules.thread_class import ThreadRange


@dataclass(frozen=True)
class ScheduleEntry:
    """One schedule, and the kernels that it is for.

    Attributes:
        program: `serialization.digest` of the program, 64 hexadecimal digits.
        device: class of the device, one of `Cpu.classes` or `Gpu.classes`: "x86-64-512-amd", "x86-64-512", "sm_90".
        sizes: typical lengths of dynamic axes that it is for; empty for all.
        knobs: settings by key, "rule.knob" or "rule.knob@func"; the rules choose all others.
        steps: all steps of the kernel; None if the rules choose them. `knobs` are those of the mapping then.
        funcs: with steps, positions of values that have Funcs which the rules would not give them, and their roles.
        threads: torch's threads for which it was measured; None for any number.
        origin: who made it, and when: "edited", "tuned 2026-11-23, 1.12 times the rules' speed".
        name: what the kernel was called where it was captured; it does not select anything.
        place: where it was read: "fast.toml, line 12"; "" if nowhere. Not part of its value.
    """

    program: str
    device: str
    knobs: tuple[tuple[str, Setting], ...] = ()
    steps: tuple[Step, ...] | None = None
    funcs: tuple[tuple[int, Role], ...] = ()
    sizes: tuple[SizeRange, ...] = ()
    threads: ThreadRange | None = None
    origin: str = ""
    name: str = ""
    place: str = field(default="", compare=False)

    @property
    def identity(self) -> str:
        """A digest of the kernels that it is for: program, device, sizes and threads."""
        sizes = [(each.axis, each.least, each.most) for each in self.sizes]
        threads = (self.threads.least, self.threads.most) if self.threads else ()
        return hashlib.sha256(repr((self.program, self.device, sizes, threads)).encode()).hexdigest()

    def is_for(self, device: Device, threads: int) -> bool:
        """Whether it is for kernels on `device` that run with so many threads."""
        return self.device in device.classes and (self.threads is None or threads in self.threads)

    @property
    def title(self) -> str:
        """How messages call it: where it stands, and for which kernel."""
        kernel = f"kernel {self.name or self.program[:12]}"
        return f"{self.place}, {kernel}" if self.place else kernel
