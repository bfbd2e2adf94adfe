"""Transposed operands on a CPU: square tiles that vector shuffles turn in registers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from halide_backend.program.access import is_contiguous
from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol
from halide_backend.program.loop_program import Load, LoopProgram, Reduction
from halide_backend.program.store_layout import output_layout
from halide_backend.program.strided_loads import strided_loads
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices, Knob

#: Sides of tiles: two elements are no vector, and 32 x 32 bytes would be five shuffles of 32 vectors each.
SIDE_LEAST, SIDE_LIMIT = 4, 16

SIDE = Knob("transposes.side", (SIDE_LEAST, 8, SIDE_LIMIT), "side of the square tiles that are turned in registers")

#: Gathers of a kernel that still unrolls the rows of its outputs' tiles: each is `side` x `side` loads of single
#: elements then. Unrolled, LLVM took 43 s for nine gathers, 3.5 s for four and 0.3 s for three; 0.3 s for nine in a
#: loop (random program 1072803).
_GATHERS = 3

#: Bytes of a row of a tile that has tails: Halide writes its body four times, with either edge guarded or not. A tile
#: whose side divides the typical extents has guards for others, too, and takes longer to compile then.
_ROW_BYTES = 32


@dataclass(frozen=True)
class Transposition:
    """Outputs that are adjacent along axis `column` from operands that are so along axis `across`, in square tiles of
    `side` x `side` elements. What is turned are operands, or the `results` of what is computed along `across`. The rows
    of an output's tile are `unrolled` or a loop."""

    column: str
    across: str
    side: int
    results: bool = False
    unrolled: bool = True


def transposition(
    program: LoopProgram, taken: AbstractSet[int], device: Cpu, choices: Choices
) -> tuple[Transposition | None, frozenset[int]]:
    """How transposed operands are turned, and their positions; None where there are none, or outputs differ.

    Reductions need operands as they lie in memory: no operand is turned then, but what is stored. Values in `taken`
    have another role already.
    """
    layouts = {store.buffer: output_layout(store, program) for store in program.stores}
    columns = {layout.variables[0] if layout.dims and layout.dims[0][1] == 1 else "" for layout in layouts.values()}
    axes = {frozenset(layout.variables) for layout in layouts.values()}
    if "" in columns or len(columns) != 1 or len(axes) != 1 or any(layout.scattered for layout in layouts.values()):
        return None, frozenset()
    checked = _behind_checks(program)
    loads = {p: along for p, along in strided_loads(program, layouts).items() if p not in taken and p not in checked}
    if not loads:
        return None, frozenset()
    ((across, _),) = Counter(loads.values()).most_common(1)
    turned = frozenset(position for position, along in loads.items() if along == across)
    column = columns.pop()
    results = any(isinstance(value.attribute, Reduction) for value in program.values)
    if results and not _reduced_along(program, across, column, len(turned)):
        return None, frozenset()
    if results:
        bits = max(ELEMENT[buffer.dtype][1] for buffer in program.outputs)
    else:
        bits = max(_bits(program, position) for position in turned)
    ends = [axis for axis in program.axes if axis.name in (column, across)]
    # No wider than the shorter axis, but for a tail.
    limit = min(SIDE_LIMIT, max(SIDE_LEAST, 1 << (min(axis.hint for axis in ends) - 1).bit_length()))
    full = min(max(device.vector_bytes * 8 // bits, SIDE_LEAST), limit)
    if all(axis.hint % full == 0 for axis in ends):
        side = choices.number(SIDE, full, "rows of a whole vector: lines of memory are read and written once")
    else:
        why = f"rows of {_ROW_BYTES} bytes: Halide writes tiles with tails several times"
        side = choices.number(SIDE, min(_ROW_BYTES * 8 // bits, limit), why)
    unrolled = results or _gathers(program, column, turned) <= _GATHERS
    return Transposition(column, across, side, results, unrolled), frozenset() if results else turned


def _gathers(program: LoopProgram, column: str, turned: AbstractSet[int]) -> int:
    """Loads whose elements are not adjacent along `column` and that are not turned either."""
    return sum(
        isinstance(value.attribute, Load)
        and column in value.axes
        and position not in turned
        and not is_contiguous(value.attribute.index, column)
        for position, value in enumerate(program.values)
    )


def _reduced_along(program: LoopProgram, across: str, column: str, turned: int) -> bool:
    """Whether all reductions have a result for each element along `across`, which is an outer axis, and most
    operands, of which `turned` are not adjacent along `column`, lie along `across`."""
    reductions = [value for value in program.values if isinstance(value.attribute, Reduction)]
    loads = [value.attribute for value in program.values if isinstance(value.attribute, Load) and not value.operands]
    along_column = sum(
        is_contiguous(load.index, column) and AxisSymbol(across) in load.index.free_symbols for load in loads
    )
    outer = {axis.name for axis in program.outer}
    return across in outer and all(across in value.axes for value in reductions) and turned > along_column


def _behind_checks(program: LoopProgram) -> frozenset[int]:
    """Values that checks need: their loops are no tiles."""
    found: set[int] = set()
    stack = [check.condition for check in program.checks]
    while stack:
        position = stack.pop()
        if position not in found:
            found.add(position)
            stack += program.values[position].operands
    return frozenset(found)


def _bits(program: LoopProgram, position: int) -> int:
    load = program.values[position].attribute
    assert isinstance(load, Load)
    return next(ELEMENT[buffer.dtype][1] for buffer in program.inputs if buffer.name == load.buffer)
