"""Which values of a program deserve a Func of their own."""

from __future__ import annotations

import math
from collections.abc import Callable

from halide_backend.program.access import is_contiguous
from halide_backend.program.composed import COMPOSED
from halide_backend.program.dtypes import NARROW_FLOATS
from halide_backend.program.extents import is_multiple
from halide_backend.program.loop_program import Load, LoopProgram, Reduction
from halide_backend.program.operation_names import MATHEMATICS
from halide_backend.program.store_layout import output_layout
from halide_backend.program.strided_loads import strided_loads
from halide_backend.program.uses import sinks_of, users_of

#: Operations whose expressions are long and write their operands several times.
_FUNCTIONS = MATHEMATICS | COMPOSED

#: Elements of the widest vector, of float32.
MOST_LANES = 16

#: A subexpression of fewer operations is cheaper to compute twice than to store.
_WORTH_SHARING = 8

#: Operations that take as long as eight additions or more: a softmax of quotients took 1.3 times as long with three
#: divisions of each element as with one (docs/design/schedules/constants.md, `stored.stores`).
_DIVISIONS = frozenset({"fmod", "reciprocal", "remainder", "rsqrt", "sqrt", "truediv"})

#: What takes much longer than a load: a value of columns that contains it is computed once for all rows, and rows from
#: which on that pays.
EXPENSIVE, _ROWS = _FUNCTIONS | _DIVISIONS, 8

#: Elements of a row up to which what is computed once for the row takes a good part of the time: four vectors of
#: AVX-512.
SHORT_ROW = 64

#: Elements of a row up to which a function of what it is reduced to does: a cache has room for a vector of them. Up to
#: which a division does, where the row is stored in 16 bits: a norm of 384 bfloat16 took 99 us, and 69 us; of float32
#: the rows are loaded again for as much as that saves.
_SEVERAL_ROWS, _NARROW_ROW = 1024, 384

#: Operations of one expression, each counted as often as it is written: Halide's definition of a Func walks through all
#: of them. A maximum of 12 values, 3**11, took 6 s, one of 18 more than 4 GB.
_LONGEST_EXPRESSION = 1000

#: What a mathematical function counts as, so that operations that write it several times get it as a Func: relu6 of
#: a float64 cosine takes 0.5 s so, 2.6 s as one expression.
_MATHEMATICAL = 400

#: How often an operation writes an operand, where that is not once.
_WRITTEN = dict.fromkeys(("maximum", "minimum"), 3)

#: float16 has an instruction.
_ROUNDED_BY_BITS = NARROW_FLOATS - {"float16"}


def shared_values(program: LoopProgram) -> frozenset[int]:
    """Values with real work behind them, and gathered loads, that several reductions or stores use."""
    users = users_of(program)
    sinks = sinks_of(program)
    gathered = _gathered(program)

    def outermost(position: int) -> bool:
        return any(sinks[user] != sinks[position] for user in users[position]) or any(
            store.value == position for store in program.stores
        )

    def deserves(position: int, work: int) -> bool:
        shared = len(sinks[position]) > 1 and not isinstance(program.values[position].attribute, Reduction)
        return shared and (position in gathered or (work >= _WORTH_SHARING and outermost(position)))

    return frozenset(_counted(program, deserves)[1])


def _gathered(program: LoopProgram) -> frozenset[int]:
    """Loads of what is reduced that have all axes and are adjacent along none of them, as of the patches of a picture:
    every loop over a row would fetch its elements one by one."""
    names = [axis.name for axis in program.axes]
    sinks = sinks_of(program)
    return frozenset(
        position
        for position, value in enumerate(program.values)
        if isinstance(value.attribute, Load)
        and not value.operands
        and len(value.axes) == len(names) > 1
        and any(sink.startswith("reduction") for sink in sinks[position])
        and not any(is_contiguous(value.attribute.index, name) for name in names)
    )


def column_values(program: LoopProgram, across: str = "") -> frozenset[int]:
    """Values of the columns of an output with a division or a function behind them, which its rows have in common: of a
    channels-last normalization the reciprocal of a standard deviation. As the loop over columns is the innermost one,
    LLVM computes them again for each row. Where results are turned, what is stored on the way has columns along
    `across`."""
    order = _loops_of_vectors(program)
    columns = _columns(program).union(order[-1:], [across] if across else [])
    hints = {axis.name: axis.hint for axis in program.axes}
    expensive: list[bool] = []
    for value in program.values:
        # Of a pointwise kernel the rows of a column's value may have something in common that is no column's.
        # What has no axes is computed once whatever it is, as the scale of an interpolation from sizes.
        own = value.operation in EXPENSIVE and bool(columns & value.axes or (order and value.axes))
        ends = isinstance(value.attribute, Load | Reduction)
        expensive.append(not ends and (own or any(expensive[operand] for operand in value.operands)))
    around = _axes_around(program)

    def rows(own: frozenset[str], axes: frozenset[str]) -> int:
        return math.prod(hints[axis] for axis in axes - own) if own < axes else 1

    return frozenset(
        position
        for position, value in enumerate(program.values)
        if expensive[position]
        and not columns.isdisjoint(value.axes)
        and any(rows(value.axes, axes) >= _ROWS for axes in around[position])
    )


def row_values(program: LoopProgram) -> frozenset[int]:
    """Values of the rows of an output with a division or a function behind them, and nothing that is reduced, where the
    rows have few elements: the gates of the channels of small images. For each row they would be computed alone, which
    takes as long as a vector of them; and where other loops lie around those of the rows, again in each of their steps,
    as the means of groups of a few adjacent channels for each pixel."""
    columns, order = _columns(program), _loops_of_vectors(program)
    hints = {axis.name: axis.hint for axis in program.axes}
    reduced: list[bool] = []
    expensive: list[bool] = []
    for value in program.values:
        reduced.append(isinstance(value.attribute, Reduction) or any(reduced[operand] for operand in value.operands))
        behind = any(expensive[operand] for operand in value.operands)
        expensive.append((value.operation in EXPENSIVE or behind) and columns.isdisjoint(value.axes))

    def short(own: frozenset[str], axes: frozenset[str]) -> bool:
        along = columns & (axes - own)
        if not own < axes:
            return False
        if along and math.prod(hints[axis] for axis in along) <= SHORT_ROW:
            return True
        inside = order[max((place + 1 for place, axis in enumerate(order) if axis in own), default=0) :]
        again = len(own) + len(inside) < len(order)
        return again and 1 < math.prod(hints[axis] for axis in inside) <= SHORT_ROW

    around = _axes_around(program)
    return frozenset(
        position
        for position, value in enumerate(program.values)
        if expensive[position]
        and not reduced[position]
        and math.prod(hints[axis] for axis in value.axes) >= _ROWS
        and any(short(value.axes, axes) for axes in around[position])
    )


def values_of_sums(program: LoopProgram) -> frozenset[int]:
    """Values with a division or a function behind them that are made of what rows are reduced to, as a standard
    deviation, where the length of the rows is computed. A loop over such a row is written several times, for vectors
    that are whole and for others, and what is computed around it as often: one square root after another. Of rows of a
    known length that is short, those with a function: the logarithms of several rows are computed as a vector, and so
    are quotients, where the rows are stored in 16 bits. So are those that are one of several results, if the last
    vector is not known to be whole."""
    column = _along_memory(program)
    axes = [axis for axis in program.axes if axis.name == column]
    known = all(isinstance(axis.extent, int) for axis in axes)
    length = math.prod(axis.hint for axis in axes)
    if known and not MOST_LANES <= length <= _SEVERAL_ROWS:
        return frozenset()
    narrow = length <= _NARROW_ROW and all(buffer.dtype in ("bfloat16", "float16") for buffer in program.outputs)
    costly = EXPENSIVE if narrow or not known else _FUNCTIONS
    reduced: list[bool] = []
    expensive: list[bool] = []
    for value in program.values:
        ends = isinstance(value.attribute, Load | Reduction)
        reduced.append(isinstance(value.attribute, Reduction) or any(reduced[operand] for operand in value.operands))
        behind = value.operation in costly or any(expensive[operand] for operand in value.operands)
        expensive.append(not ends and behind and column not in value.axes)
    around = _axes_around(program)
    whole = all(is_multiple(axis.extent, MOST_LANES) for axis in program.outer[-1:])
    several = len(program.stores) > 1 and not whole and length >= MOST_LANES
    results = {store.value for store in program.stores} if several else set[int]()
    return frozenset(
        position
        for position, value in enumerate(program.values)
        if expensive[position] and reduced[position] and value.axes
        if position in results or any(column in axes for axes in around[position])
    )


def _loops_of_vectors(program: LoopProgram) -> list[str]:
    """The axes of a pointwise kernel in the order of its loops, the one that most large loads and stores are adjacent
    along innermost; none if something is reduced, or read across what is stored."""
    layouts = {store.buffer: output_layout(store, program) for store in program.stores}
    if any(isinstance(value.attribute, Reduction) for value in program.values) or strided_loads(
        program, layouts, masked=True
    ):
        return []
    column, names = _along_memory(program), [axis.name for axis in program.outer]
    return [*(name for name in names if name != column), column]


def _along_memory(program: LoopProgram) -> str:
    """The axis that most of the largest loads and stores are adjacent along."""
    accesses = [(v.attribute.index, v.axes) for v in program.values if isinstance(v.attribute, Load)]
    accesses += [(store.index, frozenset(axis.name for axis in store.nest.iteration)) for store in program.stores]
    most, names = max(len(axes) for _, axes in accesses), [axis.name for axis in program.axes]
    large = [index for index, axes in accesses if len(axes) == most]
    return max(names, key=lambda name: sum(is_contiguous(index, name) for index in large), default="")


def _columns(program: LoopProgram) -> set[str]:
    """The innermost axes of the outputs with most axes."""
    layouts = [output_layout(store, program).variables for store in program.stores]
    most = max(map(len, layouts), default=0)
    return {variables[0] for variables in layouts if len(variables) == most > 1}


def _axes_around(program: LoopProgram) -> list[list[frozenset[str]]]:
    """The axes of what each value is used for, up to reductions, which have their rows inside their columns."""
    around: list[list[frozenset[str]]] = [[] for _ in program.values]
    for store in program.stores:
        around[store.value].append(frozenset(axis.name for axis in store.nest.iteration))
    for position, value in reversed(list(enumerate(program.values))):
        if around[position] and not isinstance(value.attribute, Reduction):
            for operand in value.operands:
                around[operand].append(value.axes)
    return around


def repeated_operands(program: LoopProgram) -> frozenset[int]:
    """Operands that an expression would write many times; as Funcs they are written once."""
    found: set[int] = set()
    for value in program.values:
        kind = value.attribute.kind if isinstance(value.attribute, Reduction) else ""
        # An order key looks at its argument five times, rounding to bfloat16 or float8 four times or more.
        rounded = value.operation == "to_dtype" and value.dtype in _ROUNDED_BY_BITS
        if value.operation in _FUNCTIONS or kind in ("max", "min", "argmax", "argmin") or rounded:
            found.update(value.operands)
    narrow = {buffer.name for buffer in program.outputs if buffer.dtype in _ROUNDED_BY_BITS}
    found.update(store.value for store in program.stores if store.buffer in narrow)
    return frozenset(found | _ends_of_long_expressions(program, found))


def mathematical_operands(program: LoopProgram) -> frozenset[int]:
    """Operands of mathematical functions, and the ends of expressions that would be too long without Funcs."""
    found = {o for value in program.values if value.operation in _FUNCTIONS for o in value.operands}
    return frozenset(found | _ends_of_long_expressions(program, found))


def _ends_of_long_expressions(program: LoopProgram, funcs: set[int]) -> set[int]:
    """Values to cut expressions at, so that none is longer than `_LONGEST_EXPRESSION`; `funcs` are cut already."""
    found: set[int] = set()
    length: list[int] = []
    for position, value in enumerate(program.values):
        times = _WRITTEN.get(value.operation, 1)
        least = _MATHEMATICAL if value.operation in _FUNCTIONS else 1
        own = least + times * sum(length[operand] for operand in value.operands)
        if own > _LONGEST_EXPRESSION:
            found.update(operand for operand in value.operands if length[operand] > 1)
            own = least + times * len(value.operands)
        cut = position in funcs or isinstance(value.attribute, Load | Reduction)
        length.append(1 if cut else own)
    return found


def operations_behind(program: LoopProgram) -> list[int]:
    """Operations behind each value, up to the reductions it reads; shared operands count once for each use.

    Divisions of what depends on fewer axes than others, a mean of each row, are few. What is computed from sizes alone
    is a number, as if they were known.
    """
    return _counted(program, lambda position, work: False)[0]


def _counted(program: LoopProgram, stored: Callable[[int, int], bool]) -> tuple[list[int], list[int]]:
    """Operations behind each value, and the values that are `stored`, given their operations: what is made of such a
    value loads it."""
    most = max((len(value.axes) for value in program.values), default=0)
    work: list[int] = []
    numbers: list[bool] = []
    found: list[int] = []
    for position, value in enumerate(program.values):
        alone = value.operation in ("constant", "index")
        computed = bool(value.operands) and not isinstance(value.attribute, Load | Reduction)
        numbers.append(not value.axes and (alone or (computed and all(numbers[each] for each in value.operands))))
        if isinstance(value.attribute, Reduction) or alone or numbers[-1]:
            work.append(0)
            continue
        divides = value.operation in _DIVISIONS and len(value.axes) == most
        own = _WORTH_SHARING if value.operation in _FUNCTIONS or divides else 1
        total = min(own + sum(work[operand] for operand in value.operands), 1000)
        if stored(position, total):
            found.append(position)
            total = 1
        work.append(total)
    return work, found
