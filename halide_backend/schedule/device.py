"""What rules know of the machine that a kernel is for.

A device follows from the compilation target alone, so that equal targets have equal plans: it describes the class of a
processor, not the one at hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from halide_backend.build.target import Target


@dataclass(frozen=True)
class Cpu:
    """A class of processors: width of a vector register, the caches that one core has to itself, in bytes, who made
    them, "" for a level of the instruction set, which several make, and the architecture as Halide calls it.

    The number of cores is not known: parallel loops have more steps than any machine has cores, and the runtime gives
    each thread a contiguous share.
    """

    vector_bytes: int
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    vendor: str = ""
    architecture: str = "x86-64"

    @property
    def vector_registers(self) -> int:
        """How many there are: x86-64 has 16 without AVX-512, others 32."""
        return 16 if self.architecture == "x86-64" and self.vector_bytes < 64 else 32

    @property
    def lines_fetched(self) -> int:
        """Cache lines that a miss brings: Intel's spatial prefetcher completes pairs of lines (Intel 64 and IA-32
        Architectures Optimization Reference Manual, "Data Prefetching")."""
        return 2 if self.vendor == "intel" else 1

    @property
    def name(self) -> str:
        """The class, as tuned plans are filed under it."""
        return self.classes[0]

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes whose schedules fit, the narrowest first."""
        wide = f"{self.architecture}-{self.vector_bytes * 8}"
        return (f"{wide}-{self.vendor}", wide) if self.vendor else (wide,)


@dataclass(frozen=True)
class Gpu:
    """A class of NVIDIA GPUs, by compute capability.

    `sms` is the number of its SMs, each of which runs up to `threads` threads that share `registers` 32-bit registers
    and `shared_bytes` bytes of shared memory; `l2_bytes` is the L2 cache of all, `bandwidth` that of its
    memory in bytes a second. Numbers are those of the largest data-centre or desktop product of the class (NVIDIA's
    tuning guides and data sheets).
    """

    capability: str
    sms: int
    threads: int
    shared_bytes: int
    l2_bytes: int
    bandwidth: float
    registers: int = 1 << 16

    @property
    def name(self) -> str:
        """The class, as tuned plans are filed under it."""
        return self.capability

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes whose schedules fit: its own."""
        return (self.capability,)


Device: TypeAlias = Cpu | Gpu

_GPUS = {
    "sm_80": Gpu("sm_80", 108, 2048, 164 << 10, 40 << 20, 2.0e12),  # A100
    "sm_86": Gpu("sm_86", 84, 1536, 100 << 10, 6 << 20, 0.9e12),  # RTX 3090, A40
    "sm_87": Gpu("sm_87", 16, 1536, 164 << 10, 4 << 20, 0.2e12),  # Jetson Orin
    "sm_89": Gpu("sm_89", 128, 1536, 100 << 10, 72 << 20, 1.0e12),  # RTX 4090
    "sm_90": Gpu("sm_90", 132, 2048, 228 << 10, 60 << 20, 4.8e12),  # H200
    "sm_100": Gpu("sm_100", 148, 2048, 228 << 10, 126 << 20, 8.0e12),  # B200
    "sm_120": Gpu("sm_120", 170, 1536, 100 << 10, 96 << 20, 1.8e12),  # RTX 5090
}


def device_of(target: Target) -> Device:
    """The device that kernels for `target` are planned for; an unknown GPU is taken for the newest older one."""
    if not target.capability:
        return Cpu(target.vector_bytes, vendor=target.vendor, architecture=target.architecture)
    number = int(target.capability.partition("_")[2])
    known = [int(name.removeprefix("sm_")) for name in _GPUS]
    return _GPUS[f"sm_{max(each for each in known if each <= max(number, 80))}"]
