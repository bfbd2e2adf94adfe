"""Which values of a program have Funcs of their own on a GPU."""

from __future__ import annotations

from halide_backend.program.aliasing import old_values
from halide_backend.program.loop_program import Load, LoopProgram, Reduction, Scan
from halide_backend.program.store_layout import output_layout
from halide_backend.program.strided_loads import strided_loads
from halide_backend.program.uses import sinks_of
from halide_backend.schedule.mapping.materialise import mathematical_operands
from halide_backend.schedule.mapping.vector_access import VectorAccess
from halide_backend.schedule.stage import Role
from halide_backend.schedule.tiling import Tiling, TilingKind


def cuda_funcs(program: LoopProgram, tiling: Tiling) -> tuple[tuple[int, Role], ...]:
    """Positions and roles: transposed operands in shared memory, rows that are read once and used more often, and what
    an expression would write many times."""
    layouts = {store.buffer: output_layout(store, program) for store in program.stores}
    tiles = strided_loads(program, layouts) if tiling.kind is TilingKind.SHARED_TRANSPOSE else {}
    words, sinks, repeated = VectorAccess(program, tiling), sinks_of(program), mathematical_operands(program)
    old, _ = old_values(program)
    found = []
    for position, value in enumerate(program.values):
        load = isinstance(value.attribute, Load)
        along = tiling.holds_lines and not value.axes.isdisjoint(tiling.inner)
        if position in old and position not in words.loads:
            found.append((position, Role.PRESERVED))
        elif position in tiles:
            found.append((position, Role.SHARED_TILE))
        elif load and along and position not in words.loads and len(sinks[position]) > 1:
            found.append((position, Role.STAGED_LOAD))
        elif (
            position in repeated
            and value.operation not in ("constant", "index", "load")
            and position not in words.loads
            and not isinstance(value.attribute, Reduction | Scan)
        ):
            found.append((position, Role.INLINE))
    return tuple(found)
