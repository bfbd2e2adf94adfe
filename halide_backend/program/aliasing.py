"""Loads of memory that the program overwrites: write-after-read hazards, and what has to be read before."""

from __future__ import annotations

import sympy

from halide_backend.errors import Unsupported
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Load, LoopProgram, Store
from halide_backend.program.store_layout import is_scatter
from halide_backend.program.uses import sinks_of


def old_values(program: LoopProgram) -> tuple[frozenset[int], frozenset[int]]:
    """Loads of memory that the program overwrites, if their values have to be stored.

    The first are read where they are overwritten, but go elsewhere, too: each is stored before that point is written.
    The second are read at other places than are written, as in `x[1:] = x[:-1]`, or by a check, which has loops of its
    own: all are stored before the first point is written.

    Raises:
        Unsupported: that would not come before the other stores; only separate kernels keep them in order.
    """
    mutated = {buffer.name for buffer in program.inputs if buffer.mutated}
    if not mutated:
        return frozenset(), frozenset()
    sinks = sinks_of(program)
    checks = {f"check {number}" for number in range(len(program.checks))}
    scatters = {f"store {number}" for number, store in enumerate(program.stores) if is_scatter(store)}
    found: set[int] = set()
    snapshots: set[int] = set()
    for position, value in enumerate(program.values):
        load = value.attribute
        if not (isinstance(load, Load) and load.buffer in mutated):
            continue
        number, store = overwriting(program, load.buffer)
        moved = load.index != store.index or store.mode is not None or bool(value.operands)
        if moved or sinks[position] & checks:
            if len(program.stores) > 1 or is_scatter(store):
                raise Unsupported(
                    "overwritten-memory-read-elsewhere",
                    f"{load.buffer} is read at {load.index}, and overwritten at {store.index}",
                )
            snapshots.add(position)
        elif sinks[position] != {f"store {number}"}:
            if sinks[position] & scatters:
                raise Unsupported(
                    "overwritten-memory-read-by-scatter",
                    f"{load.buffer} is read at {load.index} for a scatter, and overwritten",
                )
            found.add(position)
    return frozenset(found), frozenset(snapshots)


def replaces_operand(store: Store, program: LoopProgram) -> bool:
    """Whether Inductor may store a result in place of an operand: one whose elements are as large, and read where they
    are written. It does so if nothing else needs the operand."""
    bits = {buffer.name: ELEMENT[buffer.dtype][1] for buffer in (*program.inputs, *program.outputs)}
    read: dict[str, set[sympy.Expr]] = {}
    for value in program.values:
        if isinstance(value.attribute, Load):
            read.setdefault(value.attribute.buffer, set()).add(value.attribute.index)
    return any(found == {store.index} and bits[name] == bits[store.buffer] for name, found in read.items())


def overwriting(program: LoopProgram, name: str) -> tuple[int, Store]:
    """The store that overwrites the input `name`, and its number."""
    memory = next(buffer.memory for buffer in program.inputs if buffer.name == name)
    output = next(buffer.name for buffer in program.outputs if buffer.memory == memory)
    return next((k, store) for k, store in enumerate(program.stores) if store.buffer == output)
