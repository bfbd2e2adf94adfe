"""Shuffles that lanes of a warp come to without others: Halide may branch around what is selected away.

A scan asks the lanes before, and not every lane knows what it is needed for (`algorithm.cuda.intrinsics.beside` says
so). Here it is seen to that no branch on the way to a scan's shuffles depends on the lane, nor one of a loop in which
the threads of a block wait for one another.
"""

from __future__ import annotations

from collections.abc import Sequence

from halide_backend.build.ptx.calls import PUT
from halide_backend.build.ptx.instructions import Function, Module
from halide_backend.errors import HalideCompileError

_SCANNING = "shfl.sync.up"
#: Operands of which each thread of a warp, or of a block, has its own value: what a function returns may be anything.
_OF_LANES, _OF_THREADS = {"%tid.x", "[retval0]"}, {"%tid.x", "%tid.y", "%tid.z", "[retval0]"}


def check_convergence(module: Module, name: str) -> None:
    """Look at the branches before the last shuffle of a scan or exchange of a block, and those that lead back to it.

    Raises:
        HalideCompileError: one depends on the thread, or on what threads have loaded or computed.
    """
    for function in module.functions:
        shuffles = [k for k, s in enumerate(function.statements) if s.opcode.startswith(_SCANNING)]
        exchanges = [k for k, s in enumerate(function.statements) if PUT in s.operands]
        if _diverges(function, shuffles, _OF_LANES) or _diverges(function, exchanges, _OF_THREADS):
            raise HalideCompileError(
                "a shuffle or exchange behind a branch that not all lanes take",
                where=f"kernel {name}",
                cure="Please report it with the kernel's text.",
            )


def _diverges(function: Function, waits: Sequence[int], different: set[str]) -> bool:
    """Whether some threads may not come to the statements `waits`, or not as often."""
    if not waits:
        return False
    statements = function.statements
    labels = {statement.label: k for k, statement in enumerate(statements) if statement.label}
    back = [k for k, s in enumerate(statements) if s.operation == "bra" and labels.get(s.operands[0], k) <= waits[-1]]
    own: set[str] = set()
    for statement in statements[: max(waits[-1], *back, 0) + 1]:
        private = statement.opcode.startswith("ld.local") or not different.isdisjoint(statement.operands)
        if private or not own.isdisjoint(statement.registers):
            if statement.operation == "bra":
                return True
            own.update(statement.written)
    return False
