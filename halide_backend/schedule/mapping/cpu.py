"""Which values of a program have Funcs of their own on a CPU."""

from __future__ import annotations

from halide_backend.program.aliasing import old_values
from halide_backend.program.loop_program import Apply, LoopProgram, Reduction
from halide_backend.program.operation_names import RECURRENCES
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices
from halide_backend.schedule.mapping.joined import joined
from halide_backend.schedule.mapping.mapping import Mapping
from halide_backend.schedule.mapping.materialise import (
    column_values,
    repeated_operands,
    row_values,
    shared_values,
    values_of_sums,
)
from halide_backend.schedule.mapping.narrow_columns import narrow_columns
from halide_backend.schedule.mapping.transposition import transposition
from halide_backend.schedule.mapping.tuples import tuples
from halide_backend.schedule.stage import Role


def cpu_mapping(program: LoopProgram, device: Cpu, choices: Choices) -> Mapping:
    """The mapping that the rules choose for a CPU.

    Raises:
        Unsupported: overwritten memory is read where one kernel cannot keep its old value.
    """
    preserved, snapshots = old_values(program)
    turned, staged = transposition(program, preserved | snapshots, device, choices)
    across = turned.across if turned is not None and turned.results else ""
    shared = shared_values(program) | column_values(program, across) | row_values(program) | values_of_sums(program)
    repeated = repeated_operands(program)
    functions = {value.operands[0] for value in program.values if isinstance(value.attribute, Apply)}

    def role(position: int) -> Role | None:
        value = program.values[position]
        if position in preserved:
            return Role.PRESERVED
        if position in snapshots:
            return Role.SNAPSHOT
        if position in staged:
            return Role.STAGED_LOAD
        if value.operation in ("constant", "index") or isinstance(value.attribute, Reduction):
            return None
        if value.operation in RECURRENCES:
            return Role.SERIAL
        if position in shared or position in functions:
            return Role.SHARED
        return Role.INLINE if value.operation != "load" and position in repeated else None

    roles = ((position, role(position)) for position in range(len(program.values)))
    funcs = tuple((position, found) for position, found in roles if found is not None)
    groups = tuples(program, device, choices)
    together = turned is None and joined(program, device, choices)
    narrow = narrow_columns(program, {found for _, found in funcs}, together, device) if turned is None else ""
    return Mapping(funcs, transposition=turned, tuples=groups, joined=together, narrow=narrow)
