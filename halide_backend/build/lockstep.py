"""Shuffles that lanes of a warp come to without others: Halide may branch around what is selected away.

A scan asks the lanes before, and not every lane knows what it is needed for (`algorithm.cuda.intrinsics.beside` says
so). Here it is seen to that no branch on the way to a scan's shuffles depends on the lane.
"""

from __future__ import annotations

import re

from halide_backend.errors import HalideCompileError

_REGISTER = re.compile(r"%[a-z]+\d+")
_SCANNING = "shfl.sync.up"
_LANE = "%tid.x"


def check_lockstep(ptx: str, name: str) -> None:
    """Look at the branches before the last shuffle of a scan.

    Raises:
        HalideCompileError: one depends on the lane, or on what lanes have loaded or computed.
    """
    own: set[str] = set()
    for line in ptx[: max(ptx.rfind(_SCANNING), 0)].splitlines():
        found = _REGISTER.findall(line)
        # What a function of ours returns may be anything.
        differs = _LANE in line or "[retval0]" in line or not own.isdisjoint(found)
        if "bra" in line.split() and differs:
            raise HalideCompileError(
                "a shuffle behind a branch that not all lanes take",
                where=f"kernel {name}",
                cure="Please report it with the kernel's text.",
            )
        if differs:
            own.update(_written(line))


def _written(line: str) -> list[str]:
    """The registers that an instruction writes: its first operand, which may be a vector."""
    vector = re.search(r"^[^\[,]*\{([^}]*)\}", line)
    return _REGISTER.findall(vector[1]) if vector else _REGISTER.findall(line)[:1]
