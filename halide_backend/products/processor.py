"""The processor, as far as it says which library is fast on it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Processor:
    """Attributes are those of /proc/cpuinfo: vendor_id, cpu family, model name; empty or 0 where it does not say."""

    vendor: str = ""
    family: int = 0
    name: str = ""

    @staticmethod
    def read(text: str) -> Processor:
        """The first processor in `text`, which is what /proc/cpuinfo holds."""
        lines = (line.partition(":") for line in text.splitlines())
        facts: dict[str, str] = {}
        for name, _, value in lines:
            facts.setdefault(name.strip(), value.strip())
        family = facts.get("cpu family", "")
        return Processor(
            facts.get("vendor_id", ""), int(family) if family.isdecimal() else 0, facts.get("model name", "")
        )

    @staticmethod
    @cache
    def host() -> Processor:
        """That of this machine."""
        try:
            return Processor.read(Path("/proc/cpuinfo").read_text())
        except OSError:
            return Processor()
