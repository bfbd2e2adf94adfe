"""The kernels to tune: those of records, each program once."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from halide_backend.errors import NothingToTune
from halide_backend.program import serialization
from halide_backend.program.loop_program import LoopProgram


@dataclass(frozen=True)
class TunableKernel:
    """One program.

    Attributes:
        name: of the kernel in its graph, the first one if several have this program.
        count: kernels with this program in the records.
        device: where it was captured, "cpu" or "cuda:0".
    """

    name: str
    program: LoopProgram
    device: str = "cpu"
    count: int = 1

    @cached_property
    def digest(self) -> str:
        """The program's."""
        return serialization.digest(self.program)


def kernels_of(records: Iterable[Any], device: str) -> list[TunableKernel]:
    """The kernels of this backend in `records` on `device` ("cpu" or "cuda"), in their order.

    Args:
        records: what `KernelRecord.to_json` returns; lines of a log of trials do as well.

    Raises:
        NothingToTune: there is none. ProgramError: one is of another version.
    """
    found: dict[str, TunableKernel] = {}
    delegated = elsewhere = without = 0
    for record in records:
        if not isinstance(record, Mapping) or "trial" in record:
            continue
        where = str(record.get("device", device))
        if record.get("delegation") is not None:
            delegated += 1
        elif where.partition(":")[0] != device:
            elsewhere += 1
        elif record.get("program") is None:
            without += 1
        else:
            kernel = TunableKernel(_name(record), serialization.from_json(record["program"]), where)
            known = found.get(kernel.digest)
            found[kernel.digest] = kernel if known is None else replace(known, count=known.count + 1)
    if not found:
        raise NothingToTune(
            f"no kernel of this backend on {device}: {delegated} delegated, {elsewhere} on other devices, "
            f"{without} without a program",
            cure="let the program call something that torch.compile compiles, on this device",
        )
    return list(found.values())


def matching(kernels: Sequence[TunableKernel], pattern: str) -> list[TunableKernel]:
    """Those whose name, or digest, has the shell pattern `pattern`.

    Raises:
        NothingToTune: none has.
    """
    found = [each for each in kernels if fnmatch.fnmatch(each.name, pattern) or fnmatch.fnmatch(each.digest, pattern)]
    if not found:
        names = ", ".join(kernel.name for kernel in kernels[:8])
        more = f" and {len(kernels) - 8} others" if len(kernels) > 8 else ""
        raise NothingToTune(f"no kernel matches {pattern!r}", where="--kernels", cure=f"there are {names}{more}")
    return found


def _name(record: Mapping[str, Any]) -> str:
    """The name of the launch, and which of its pipelines it is."""
    name, position = str(record.get("name", "")), record.get("position", 0)
    return f"{name}.{position}" if position else name
