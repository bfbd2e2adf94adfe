"""Transposed operands on a CPU: square tiles that vector shuffles turn in registers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from halide_backend.program.access import in_chunks, is_contiguous
from halide_backend.program.dtypes import ELEMENT, NARROW_FLOATS
from halide_backend.program.index import AxisSymbol, expanded
from halide_backend.program.loop_program import Apply, Load, LoopProgram, Reduction, Scan
from halide_backend.program.operation_names import RECURRENCES
from halide_backend.program.store_layout import OutputLayout, output_layout
from halide_backend.program.strided_loads import lies_across, strided_loads
from halide_backend.program.uses import sinks_of
from halide_backend.schedule.device import Cpu
from halide_backend.schedule.knobs import Choices, Knob
from halide_backend.schedule.mapping.materialise import operations_behind
from halide_backend.schedule.mapping.tuples import tuples

#: Sides of tiles: two elements are no vector, and 32 vectors are all registers.
SIDE_LEAST, SIDE_LIMIT = 4, 32

#: Bytes of a page: the places of an L1 cache repeat after one.
PAGE = 4096

#: The side of a tile beside which anything is computed, at most, and of one in 16 registers.
_SIDE_COMPUTED = 16

OPERANDS = Knob(
    "transposes.operands", (False, True), "turn the operands of reductions that lie across most others, in tiles"
)
SIDE = Knob("transposes.side", (SIDE_LEAST, 8, 16, SIDE_LIMIT), "side of the square tiles that are turned in registers")

#: Gathers of a kernel that still unrolls the rows of its outputs' tiles: each is `side` x `side` loads of single
#: elements then. Unrolled, LLVM took 43 s for nine gathers, 3.5 s for four and 0.3 s for three; 0.3 s for nine in a
#: loop (random program 1072803).
_GATHERS = 3

#: Bytes of a row of a tile where whole vectors would reach far beyond the ends: more than `_MOST_TURNED` times the
#: points. 37 x 43 float32 are 40 x 48 in tiles of 8 a side and 48 x 48 in tiles of 16.
_ROW_BYTES, _MOST_TURNED = 32, 1.25

#: Points as many times those of parts of a vector, up to which whole vectors take no longer.
_AS_MANY = 1.15

#: The same of values that are computed from several loads before they are turned: half a vector at a time needs twice
#: the loads ("a sum of four, turned" in benchmarks/kinds_of_kernels.py).
_MOST_COMPUTED = 1.5

#: Operations of an element, a function counted as eight, from which on half a vector at a time takes longer than all
#: copies of a whole one: GELU of 384 x 1500 transposed elements was faster with whole vectors, by a script.
_FUNCTION_WORK = 12

#: Reductions with a second loop over the same elements.
_TWO_LOOPS = ("argmin", "argmax")

#: Vectors of columns that are reduced together (`accumulators.HELD`).
_COLUMNS = 4


@dataclass(frozen=True)
class Transposition:
    """Outputs that are adjacent along axis `column` from operands that are so along axis `across`, in square tiles of
    `side` x `side` elements. What is turned are operands, or the `results` of what is computed along `across`. The rows
    of an output's tile are `unrolled` or a loop. Operands of reductions are turned for what is `reduced`, "rows" along
    `column`, `side` of them at a time, or "columns", which lie side by side along it; "blocks" are columns whose turned
    operands other loops need, too, or beside which results are stored along `across`: all of that is turned for a block
    of columns at a time. `apart` are the bytes between lines of an operand that is turned for outputs, 0 if they are
    computed."""

    column: str
    across: str
    side: int
    results: bool = False
    unrolled: bool = True
    reduced: str = ""
    apart: int = 0


def transposition(
    program: LoopProgram, taken: AbstractSet[int], device: Cpu, choices: Choices
) -> tuple[Transposition | None, frozenset[int]]:
    """How transposed operands are turned, and their positions; None where there are none, or outputs differ.

    Of reductions either all operands lie along one axis, and what is stored is turned, or those few that do not are.
    Rows need a shuffle for each step of a sum of their vectors, so results are turned first, if no operand is adjacent
    along them. Values in `taken` have another role already. What is scanned is turned nowhere.
    """
    if any(isinstance(value.attribute, Scan) for value in program.values):
        return None, frozenset()
    if (found := _of_outputs(program, taken, device, choices, alone=True))[0] is not None:
        return found
    if (found := _of_reductions(program, taken, device, choices))[0] is not None:
        return found
    return _of_outputs(program, taken, device, choices)


def _of_outputs(
    program: LoopProgram, taken: AbstractSet[int], device: Cpu, choices: Choices, *, alone: bool = False
) -> tuple[Transposition | None, frozenset[int]]:
    """Operands that lie across outputs, or outputs that lie across the operands of what is reduced; `alone`: only
    these, and only if no operand is adjacent along the outputs."""
    layouts = {store.buffer: output_layout(store, program) for store in program.stores}
    if any(layout.scattered for layout in layouts.values()):
        return None, frozenset()
    whole = max((frozenset(layout.variables) for layout in layouts.values()), key=len, default=frozenset())
    tiled = {buffer: layout for buffer, layout in layouts.items() if whole == frozenset(layout.variables)}
    columns = {layout.variables[0] if layout.dims and layout.dims[0][1] == 1 else "" for layout in tiled.values()}
    if "" in columns or len(columns) != 1:
        return None, frozenset()
    checked = _behind_checks(program)
    loads = {
        p: along
        for p, along in strided_loads(program, tiled, masked=True).items()
        if p not in taken and p not in checked
    }
    if not loads:
        return None, frozenset()
    ((across, _),) = Counter(loads.values()).most_common(1)
    turned = frozenset(position for position, along in loads.items() if along == across)
    column = columns.pop()
    results = any(isinstance(value.attribute, Reduction) for value in program.values)
    most = 0 if alone else len(turned) - 1
    if (alone and not results) or (results and not _reduced_along(program, across, column, most)):
        return None, frozenset()
    # The other outputs are those of rows: what rows are reduced to.
    if any(not results or whole - {column} != frozenset(layouts[each].variables) for each in layouts.keys() - tiled):
        return None, frozenset()
    if results:
        bits = max(ELEMENT[buffer.dtype][1] for buffer in program.outputs)
    else:
        bits = max(_bits(program, position) for position in turned)
    ends = [axis for axis in program.axes if axis.name in (column, across)]
    staged = turned if results else _turned_values(program, turned)
    (first, *_) = (value.attribute for value in map(program.values.__getitem__, sorted(turned)))
    assert isinstance(first, Load)
    step = expanded(first.index).coeff(AxisSymbol(column))
    apart = int(step) * bits // 8 if step.is_Integer else 0
    stored = (dict(zip(layout.variables, layout.dims))[across][1] for layout in tiled.values())
    # Of 16-bit elements such rows are stored in pairs of smaller tiles (`transposes.lines`); Intel stores rows of wider
    # ones in 0.64 of that time (permute_2301 bfloat16 on an Emerald Rapids).
    apart_by_pages = apart % PAGE != 0 and any(stride * bits % (8 * PAGE) == 0 for stride in stored)
    crowded = bits == 16 and apart_by_pages and device.vendor != "intel"
    copied = all(store.value in turned for store in program.stores)
    widest = min(SIDE_LIMIT, device.vector_registers) if copied and not crowded else _SIDE_COMPUTED
    # No wider than the shorter axis, but for a tail.
    limit = min(widest, max(SIDE_LEAST, 1 << (min(axis.hint for axis in ends) - 1).bit_length()))
    full = min(max(device.vector_bytes * 8 // bits, SIDE_LEAST), limit)
    if full > _SIDE_COMPUTED and all(axis.hint % _SIDE_COMPUTED == 0 for axis in ends):
        # Smaller tiles without guards are faster: 1,024 x 1,040 bfloat16 took 74 us, and 94 us.
        full = full if all(axis.hint % full == 0 for axis in ends) else _SIDE_COMPUTED
    if all(axis.hint % full == 0 for axis in ends):
        side = choices.number(SIDE, full, "rows of a whole vector: lines of memory are read and written once")
    elif (work := max(operations_behind(program)[store.value] for store in program.stores)) >= _FUNCTION_WORK:
        side = choices.number(SIDE, full, f"rows of a whole vector: {work} operations take longer than guards")
    else:
        # Of a tile that reaches beyond an end all is turned.
        part = min(_ROW_BYTES * 8 // bits, limit)
        points, in_full, in_parts = (math.prod(n * -(-axis.hint // n) for axis in ends) for n in (1, full, part))
        beyond = _MOST_TURNED if len(staged) == len(turned) else _MOST_COMPUTED
        little = in_full <= beyond * points or in_full <= _AS_MANY * in_parts
        lengths = {axis.name: axis.hint for axis in ends}
        # Only one end has guards then, and of rows that begin anywhere in a line each store of a vector crosses one.
        halves = 2 * part == full and lengths[across] % full == part and lengths[column] % part
        little = little and not (copied and halves)
        why = f"rows of a whole vector, of which {'' if little else 'no '}little reaches beyond ends"
        side = choices.number(SIDE, full if little else part, why)
    unrolled = results or _gathers(program, column, side, turned) <= _GATHERS
    found = Transposition(column, across, side, results, unrolled, apart=apart)
    return found, frozenset() if results else staged


def _of_reductions(
    program: LoopProgram, taken: AbstractSet[int], device: Cpu, choices: Choices
) -> tuple[Transposition | None, frozenset[int]]:
    """The operands of reductions that lie across most others."""
    nothing = None, frozenset[int]()
    if not program.outer or program.checks or _is_irregular(program):
        return nothing
    reductions = [value.attribute for value in program.values if isinstance(value.attribute, Reduction)]
    reduced = [frozenset(axis.name for axis in each.axes) for each in reductions]
    hints, lanes = {axis.name: axis.hint for axis in program.axes}, device.vector_bytes // 4
    # Where as much lies one way as the other, columns are read as often as they are reduced: from a cache, if as many
    # of them as have accumulators fit into it. So have rows that are turned.
    row = range(2 * device.l1_bytes // (_COLUMNS * lanes * 4), device.l1_bytes // (lanes * 4) + 1)
    sizes, outer = _contiguous(program), program.outer[-1].name
    in_rows = frozenset(axis for axis in sizes if axis != outer and hints[axis] in row)

    def turned_along(column: str) -> str:
        """The axis along which operands lie that are turned for others along `column`, "" if there is no such form."""
        if reduced and all(column in axes for axes in reduced):
            return outer
        if column == outer and reduced and all(axes == reduced[0] for axes in reduced):
            return max(reduced[0], key=lambda axis: sizes[axis])
        return ""

    def order(axis: str) -> tuple[int, bool, int, bool, bool]:
        return sizes[axis], bool(turned_along(axis)), _lines(program, axis), axis in in_rows, axis == outer

    column = max(sizes, key=order, default="")
    across = turned_along(column)
    if not across:
        return nothing
    loads = {p: v.attribute for p, v in enumerate(program.values) if isinstance(v.attribute, Load) and p not in taken}
    turned = frozenset(
        position
        for position, load in loads.items()
        if {column, across} <= program.values[position].axes and lies_across(load, column, across)
    )
    kind = "rows" if across == outer else "columns"
    if across != outer:
        groups = tuples(program, device, choices)
        for_one = frozenset(each for each in turned if _is_for_one(program, each, groups))
        if not _has_all_axes(program):  # what some of the columns share is computed before a block of them
            turned = for_one
        elif for_one != turned or _stored_both_ways(program, across, column):
            kind = "blocks"
    side = device.vector_bytes * 8 // max((32, *(_bits(program, position) for position in turned)))
    if not (turned or kind == "blocks") or min(hints[column], hints[across]) < side:
        return nothing
    why = f"{len(turned)} operands lie across most others: element by element, they take longer than all of these"
    if not choices.flag(OPERANDS, True, why):
        return nothing
    return Transposition(column, across, side, reduced=kind), turned


def _has_all_axes(program: LoopProgram) -> bool:
    """Whether each reduction has a result for every point of the outer axes."""
    outer = {axis.name for axis in program.outer}
    return all(outer <= value.axes for value in program.values if isinstance(value.attribute, Reduction))


def _stored_both_ways(program: LoopProgram, across: str, column: str) -> bool:
    """Whether one result is contiguous along axis `across` and another one along `column`, and both have both axes."""
    layouts = [output_layout(store, program) for store in program.stores]
    return all(any(is_turned(layout, *axes) for layout in layouts) for axes in ((across, column), (column, across)))


def is_turned(layout: OutputLayout, across: str, column: str) -> bool:
    """Whether an output of this layout is contiguous along `across`, and lies across memory along `column`."""
    return layout.variables[:1] == (across,) and layout.dims[0][1] == 1 and column in layout.variables


def _contiguous(program: LoopProgram) -> Counter[str]:
    """Bits for each point of the largest loads and stores that are adjacent along each axis."""
    bits = {buffer.name: ELEMENT[buffer.dtype][1] for buffer in (*program.inputs, *program.outputs)}
    accesses = [
        (v.attribute.buffer, v.attribute.index, v.axes) for v in program.values if isinstance(v.attribute, Load)
    ]
    accesses += [(s.buffer, s.index, frozenset(axis.name for axis in s.nest.iteration)) for s in program.stores]
    most, found = max((len(axes) for _, _, axes in accesses), default=0), Counter[str]()
    for buffer, index, axes in accesses:
        if len(axes) == most:
            found.update({axis: bits[buffer] for axis in axes if is_contiguous(index, axis)})
    return found


def _lines(program: LoopProgram, axis: str) -> int:
    """Loads of several axes that are adjacent along `axis`, those that all images of a batch share among them."""
    loads = ((value.attribute, value.axes) for value in program.values)
    return sum(isinstance(load, Load) and len(axes) > 1 and is_contiguous(load.index, axis) for load, axes in loads)


def _is_for_one(program: LoopProgram, position: int, groups: tuple[tuple[int, ...], ...]) -> bool:
    """Whether all that needs the value at `position` is one loop of a reduction, or of those of one group."""
    sinks = sinks_of(program)[position]
    reductions = ((number, value.attribute) for number, value in enumerate(program.values))
    alone = [(n,) for n, each in reductions if isinstance(each, Reduction) and each.kind not in _TWO_LOOPS]
    return any(sinks <= {f"reduction {number}" for number in group} for group in (*groups, *alone))


def _is_irregular(program: LoopProgram) -> bool:
    """Whether there are scatters, recurrences, or values that are read at other coordinates than their own."""
    return any(output_layout(store, program).scattered for store in program.stores) or any(
        isinstance(value.attribute, Apply | Scan) or value.operation in RECURRENCES for value in program.values
    )


def _turned_values(program: LoopProgram, loads: AbstractSet[int]) -> frozenset[int]:
    """What is turned for the outputs of a program without reductions: the `loads` that lie across them, or the values
    that are made of these and of what all rows or columns share, as a sum of three, if there are fewer of them."""
    (load, *_) = (program.values[position] for position in loads)
    sinks = sinks_of(program)
    apart: set[int] = set()
    for position, value in enumerate(program.values):
        alike = value.dtype == load.dtype and value.axes == load.axes and value.dtype not in NARROW_FLOATS
        operands = [operand for operand in value.operands if program.values[operand].axes == load.axes]
        # What several outputs need is turned for all of them.
        made = alike and bool(operands) and apart.issuperset(operands) and value.operation not in RECURRENCES
        made = made and all(sinks[operand] == sinks[position] for operand in operands)
        if position in loads or (made and not isinstance(value.attribute, Load | Apply)):
            apart.add(position)
    needed = {operand for value in apart for operand in program.values[value].operands}
    ends = {position for position in apart if position not in needed}
    ends |= {o for p, v in enumerate(program.values) if p not in apart for o in v.operands if o in apart}
    ends |= {store.value for store in program.stores if store.value in apart}
    return frozenset(ends if len(ends) < len(loads) else loads)


def _gathers(program: LoopProgram, column: str, side: int, turned: AbstractSet[int]) -> int:
    """Loads whose elements are not adjacent along a tile of `side` columns and that are not turned either."""
    return sum(
        isinstance(value.attribute, Load)
        and column in value.axes
        and position not in turned
        and not is_contiguous(in_chunks(value.attribute.index, column, side), column)
        for position, value in enumerate(program.values)
    )


def _reduced_along(program: LoopProgram, across: str, column: str, most: int) -> bool:
    """Whether all reductions have a result for each element along `across`, which is an outer axis, and `most` operands
    or fewer lie along `column`."""
    reductions = [value for value in program.values if isinstance(value.attribute, Reduction)]
    along_column = sum(
        isinstance(value.attribute, Load) and across in value.axes and is_contiguous(value.attribute.index, column)
        for value in program.values
    )
    outer = {axis.name for axis in program.outer}
    return across in outer and all(across in value.axes for value in reductions) and along_column <= most


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
