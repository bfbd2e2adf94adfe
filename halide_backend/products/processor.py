"""The processor, as far as it says which library is fast on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: Instructions that products are computed by.
FEATURES = ("amx_bf16", "avx512_bf16", "avx512f")


@dataclass(frozen=True)
class Processor:
    """Attributes are those of /proc/cpuinfo: vendor_id, cpu family, model name, and which of `FEATURES` are among its
    flags; empty or 0 where it does not say."""

    vendor: str = ""
    family: int = 0
    name: str = ""
    features: tuple[str, ...] = ()

    @property
    def has_matrix_unit(self) -> bool:
        """Whether it multiplies matrices of bfloat16 by AMX."""
        return "amx_bf16" in self.features

    @staticmethod
    def read(text: str) -> Processor:
        """The first processor in `text`, which is what /proc/cpuinfo holds."""
        lines = (line.partition(":") for line in text.splitlines())
        facts: dict[str, str] = {}
        for name, _, value in lines:
            facts.setdefault(name.strip(), value.strip())
        family = facts.get("cpu family", "")
        flags = facts.get("flags", "").split()
        features = tuple(name for name in FEATURES if name in flags)
        number = int(family) if family.isdecimal() else 0
        return Processor(facts.get("vendor_id", ""), number, facts.get("model name", ""), features)

    @staticmethod
    @cache
    def host() -> Processor:
        """That of this machine."""
        try:
            return Processor.read(Path("/proc/cpuinfo").read_text())
        except OSError:
            return Processor()
