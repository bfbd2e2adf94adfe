"""Which values of a program deserve a Func of their own."""

from __future__ import annotations

import sympy

from halide_backend.algorithm.arguments import NARROW_FLOATS
from halide_backend.algorithm.loop_program import Load, LoopProgram, Reduction, Scan, Store, Value
from halide_backend.algorithm.operation_names import MATHEMATICS
from halide_backend.algorithm.placement import OutputLayout
from halide_backend.errors import Unsupported

#: A subexpression of fewer operations is cheaper to compute twice than to store.
_WORTH_SHARING = 8

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

#: Below this extent a strided load stays in one cache line or two; copying it into a tile would not pay.
_TILE = 8


def shared_values(program: LoopProgram) -> frozenset[int]:
    """Values with real work behind them that several reductions or stores use."""
    users = _users(program)
    sinks = sinks_of(program)
    work = _work(program)

    def outermost(position: int) -> bool:
        return any(sinks[user] != sinks[position] for user in users[position]) or any(
            store.value == position for store in program.stores
        )

    return frozenset(
        position
        for position, value in enumerate(program.values)
        if len(sinks[position]) > 1
        and work[position] >= _WORTH_SHARING
        and not isinstance(value.attribute, Reduction)
        and outermost(position)
    )


def repeated_operands(program: LoopProgram) -> frozenset[int]:
    """Operands that an expression would write many times; as Funcs they are written once."""
    found: set[int] = set()
    for value in program.values:
        kind = value.attribute.kind if isinstance(value.attribute, Reduction) else ""
        # An order key looks at its argument five times, rounding to bfloat16 or float8 four times or more.
        rounded = value.operation == "to_dtype" and value.dtype in _ROUNDED_BY_BITS
        if value.operation in MATHEMATICS or kind in ("max", "min", "argmax", "argmin") or rounded:
            found.update(value.operands)
    narrow = {buffer.name for buffer in program.outputs if buffer.dtype in _ROUNDED_BY_BITS}
    found.update(store.value for store in program.stores if store.buffer in narrow)
    return frozenset(found | _ends_of_long_expressions(program, found))


def _ends_of_long_expressions(program: LoopProgram, funcs: set[int]) -> set[int]:
    """Values to cut expressions at, so that none is longer than `_LONGEST_EXPRESSION`; `funcs` are cut already."""
    found: set[int] = set()
    length: list[int] = []
    for position, value in enumerate(program.values):
        times = _WRITTEN.get(value.operation, 1)
        least = _MATHEMATICAL if value.operation in MATHEMATICS else 1
        own = least + times * sum(length[operand] for operand in value.operands)
        if own > _LONGEST_EXPRESSION:
            found.update(operand for operand in value.operands if length[operand] > 1)
            own = least + times * len(value.operands)
        cut = position in funcs or isinstance(value.attribute, Load | Reduction)
        length.append(1 if cut else own)
    return found


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
    scatters = {f"store {number}" for number, store in enumerate(program.stores) if _is_scatter(store)}
    found: set[int] = set()
    snapshots: set[int] = set()
    for position, value in enumerate(program.values):
        load = value.attribute
        if not (isinstance(load, Load) and load.buffer in mutated):
            continue
        number, store = _overwriting(program, load.buffer)
        moved = load.index != store.index or store.mode is not None or bool(value.operands)
        if moved or sinks[position] & checks:
            if len(program.stores) > 1 or _is_scatter(store):
                raise Unsupported("overwritten memory is read at another place than it is written, or by a check")
            snapshots.add(position)
        elif sinks[position] != {f"store {number}"}:
            if sinks[position] & scatters:
                raise Unsupported("overwritten memory is read by a scatter, which runs after the outputs")
            found.add(position)
    return frozenset(found), frozenset(snapshots)


def _work(program: LoopProgram) -> list[int]:
    """Operations behind each value, up to the reductions it reads; shared operands count once for each use."""
    work: list[int] = []
    for value in program.values:
        if isinstance(value.attribute, Reduction) or value.operation in ("constant", "index"):
            work.append(0)
            continue
        own = _WORTH_SHARING if value.operation in MATHEMATICS else 1
        work.append(min(own + sum(work[operand] for operand in value.operands), 1000))
    return work


def strided_loads(program: LoopProgram, layouts: dict[str, OutputLayout]) -> frozenset[int]:
    """Loads that run along another axis of memory than the store they feed: the transposed operands."""
    found: set[int] = set()
    hints = {axis.name: axis.hint for axis in program.axes}
    for store in program.stores:
        layout = layouts[store.buffer]
        if layout.scattered or not layout.dims or layout.dims[0][1] != 1:
            continue
        inner = layout.variables[0]
        if hints[inner] < _TILE:
            continue
        for position in _behind(program, store):
            value = program.values[position]
            if isinstance(value.attribute, Load) and _is_transposed(value, value.attribute, inner, program):
                found.add(position)
    return frozenset(found)


def _behind(program: LoopProgram, store: Store) -> set[int]:
    seen: set[int] = set()
    stack = [store.value]
    while stack:
        position = stack.pop()
        if position not in seen:
            seen.add(position)
            if not isinstance(program.values[position].attribute, Reduction):
                stack += program.values[position].operands
    return seen


def _is_transposed(value: Value, load: Load, inner: str, program: LoopProgram) -> bool:
    if value.operands or inner not in value.axes:
        return False
    extents = {axis.name: axis.hint for axis in program.axes}
    index = sympy.expand(load.index)
    by_name = {symbol.name: symbol for symbol in index.free_symbols if symbol.name in extents}
    strides = {name: index.coeff(symbol) for name, symbol in by_name.items()}
    if inner not in strides or strides[inner] in (0, 1, -1):
        return False
    return any(stride == 1 and extents[name] >= _TILE for name, stride in strides.items() if name != inner)


def _is_scatter(store: Store) -> bool:
    return store.mode is not None or any(symbol.name.startswith("j") for symbol in store.index.free_symbols)


def _overwriting(program: LoopProgram, name: str) -> tuple[int, Store]:
    memory = next(buffer.memory for buffer in program.inputs if buffer.name == name)
    output = next(buffer.name for buffer in program.outputs if buffer.memory == memory)
    return next((k, store) for k, store in enumerate(program.stores) if store.buffer == output)


def _users(program: LoopProgram) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in program.values]
    for position, value in enumerate(program.values):
        for operand in value.operands:
            users[operand].append(position)
    return users


def sinks_of(program: LoopProgram) -> list[set[str]]:
    """The stores, reductions, scans and checks that each value flows into."""
    users = _users(program)
    sinks: list[set[str]] = [set() for _ in program.values]
    for number, store in enumerate(program.stores):
        sinks[store.value].add(f"store {number}")
        for symbol in store.index.free_symbols:
            if symbol.name.startswith("j"):
                sinks[int(symbol.name[1:])].add(f"store {number}")
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
