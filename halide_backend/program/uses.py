"""Who uses a value: its users, and the stores, reductions, scans and checks that it flows into."""

from __future__ import annotations

from halide_backend.program.index import values_of
from halide_backend.program.loop_program import LoopProgram, Reduction, Scan


def sinks_of(program: LoopProgram) -> list[set[str]]:
    """The stores, reductions, scans and checks that each value flows into."""
    users = users_of(program)
    sinks: list[set[str]] = [set() for _ in program.values]
    for number, store in enumerate(program.stores):
        sinks[store.value].add(f"store {number}")
        for position in values_of(store.index):
            sinks[position].add(f"store {number}")
    for number, check in enumerate(program.checks):
        sinks[check.condition].add(f"check {number}")
    for position in reversed(range(len(program.values))):
        for user in users[position]:
            attribute = program.values[user].attribute
            if isinstance(attribute, Reduction):
                sinks[position].add(f"reduction {user}")
            elif isinstance(attribute, Scan):
                # Its components are computed together.
                sinks[position].add(f"scan {program.values[user].operands} {attribute.combination}")
            else:
                sinks[position] |= sinks[user]
    return sinks


def users_of(program: LoopProgram) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in program.values]
    for position, value in enumerate(program.values):
        for operand in value.operands:
            users[operand].append(position)
    return users
