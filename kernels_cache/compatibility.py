"""What an entry requires and what a machine provides in, the reason for a refusal out.

Asked before an entry is loaded: machine code for wider vectors would end in SIGILL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernels_cache.canonical import Json, printable


@dataclass(frozen=True)
class Refusal:
    """One requirement of an entry that this machine does not meet.

    Attributes:
        field: name of the requirement, e.g. "cpu_features".
        required: what the entry asks for; for a list only the missing items.
        provided: what the machine has, None when it did not say.
    """

    field: str
    required: Json
    provided: Json

    def __str__(self) -> str:
        return f"{printable(self.field)}: requires {self.required!r}, this machine has {self.provided!r}"


def refusal(requires: Mapping[str, Json], provides: Mapping[str, Json]) -> Refusal | None:
    """Compare requirements with a machine, in the order of the names.

    A required list must be contained in the provided list; anything else must be equal. What
    the machine does not mention it does not provide.
    """
    for name in sorted(requires):
        wanted, offered = requires[name], provides.get(name)
        if isinstance(wanted, list):
            offers = offered if isinstance(offered, (list, tuple)) else []
            missing: list[Json] = [item for item in wanted if item not in offers]
            if missing:
                return Refusal(name, missing, offered)
        elif wanted != offered:
            return Refusal(name, wanted, offered)
    return None
