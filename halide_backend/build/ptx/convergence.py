"""Shuffles that lanes of a warp come to without others: Halide may branch around what is selected away.

A scan asks the lanes before, and not every lane knows what it is needed for (`algorithm.cuda.intrinsics.beside` says
so). Here it is seen to that no branch on the way to a scan's shuffles depends on the lane, nor one of a loop in which
the threads of a block wait for one another.
"""

from __future__ import annotations

from halide_backend.build.ptx.calls import PUT
from halide_backend.build.ptx.instructions import Function, Module
from halide_backend.errors import HalideCompileError

_SCANNING = "shfl.sync.up"
#: Operands of which each lane has its own value: what a function returns may be anything.
_DIFFERENT = {"%tid.x", "[retval0]"}


def check_convergence(module: Module, name: str) -> None:
    """Look at the branches before the last shuffle of a scan or exchange of a block, and those that lead back to it.

    Raises:
        HalideCompileError: one depends on the lane, or on what lanes have loaded or computed.
    """
    if any(_diverges(function) for function in module.functions):
        raise HalideCompileError(
            "a shuffle behind a branch that not all lanes take",
            where=f"kernel {name}",
            cure="Please report it with the kernel's text.",
        )


def _diverges(function: Function) -> bool:
    statements = function.statements
    waits = [k for k, s in enumerate(statements) if s.opcode.startswith(_SCANNING) or PUT in s.operands]
    last = max(waits, default=0)
    labels = {statement.label: k for k, statement in enumerate(statements) if statement.label}
    back = (k for k, s in enumerate(statements) if s.operation == "bra" and labels.get(s.operands[0], k) <= last)
    last = max(last, *(k + 1 for k in back), 0)
    own: set[str] = set()
    for statement in statements[:last]:
        private = statement.opcode.startswith("ld.local") or not _DIFFERENT.isdisjoint(statement.operands)
        if private or not own.isdisjoint(statement.registers):
            if statement.operation == "bra":
                return True
            own.update(statement.written)
    return False
