"""How large an index may become, and what it is computed from: Halide's coordinates are of int32."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import sympy

from halide_backend.program.index import AxisSymbol, FloorDiv, Max, Min, Mod, Select, SizeSymbol, ValueSymbol
from halide_backend.program.loop_program import Extent, Indirect, LoopProgram

#: What int32 holds, and what sizes are at most: none is so near to that that a number below `SMALL`, padding of a
#: filter, leads beyond.
INT32, SMALL = 1 << 31, 1 << 15
_SIZE = (0, INT32 - SMALL)

_Range = tuple[int, int]
_FUNCTIONS = (FloorDiv, Max, Min, Mod, Select, sympy.Abs)


def fits_int32(index: sympy.Expr, program: LoopProgram) -> bool:
    """Whether int32 holds `index`, and everything on the way to it, at all points of the loops of `program`."""
    return _of(index, extents_of(program), INT32) is not None


def magnitude(index: sympy.Expr, program: LoopProgram) -> int | None:
    """How far from 0 `index` is at most, at all points of the loops of `program`; None if int32 may not hold it."""
    found = _of(index, extents_of(program), INT32)
    return None if found is None else max(-found[0], found[1])


def overflows(index: sympy.Expr, program: LoopProgram) -> bool:
    """Whether int32 may not hold what a function within `index` is of.

    Around functions an index is the place of an element, which int32 holds, as it does the sums of sizes times
    coordinates from which views compute quotients. With sizes that are known only to the caller, products of
    coordinates are what is left.
    """
    functions = index.atoms(*_FUNCTIONS)
    if not functions:
        return False
    extents = extents_of(program)
    symbols = set().union(*(function.free_symbols for function in functions))
    if all(isinstance(extents.get(symbol), int) for symbol in symbols):
        return any(_of(function, extents, INT32) is None for function in functions)
    return any(_multiplies_coordinates(function) for function in functions)


def extents_of(program: LoopProgram) -> dict[sympy.Basic, Extent]:
    """How many values each coordinate of loops, and each index that data hold, can have: those from 0 on."""
    extents: dict[sympy.Basic, Extent] = {axis.symbol: axis.extent for axis in program.axes}
    for position, value in enumerate(program.values):
        if isinstance(value.attribute, Indirect):
            extents[ValueSymbol.of(position)] = value.attribute.size
    return extents


def _multiplies_coordinates(index: sympy.Basic) -> bool:
    for part in sympy.preorder_traversal(index):
        if part.is_Pow or part.is_Mul:
            factors = [argument for argument in part.args if argument.atoms(AxisSymbol, ValueSymbol)]
            if len(factors) > 1 or (part.is_Pow and factors):
                return True
    return False


def _of(index: sympy.Basic, extents: Mapping[sympy.Basic, Extent], limit: float) -> _Range | None:
    """The least and the greatest value of `index`; None if it, or what it is computed from, may reach `limit`."""
    if index.is_Pow and not (index.args[1].is_Integer and index.args[1] > 0):
        return None
    parts = [_of(argument, extents, limit) for argument in _operands(index)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    match index:
        case sympy.Integer():
            found = int(index), int(index)
        case SizeSymbol():
            found = _SIZE if index.is_nonnegative else (-_SIZE[1], _SIZE[1])
        case sympy.Symbol():
            found = 0, _most(extents.get(index, INT32 - 1)) - 1
        case sympy.Add():
            # In any order.
            ends = sum(min(low, 0) for low, _ in known), sum(max(high, 0) for _, high in known)
            if max(-ends[0], ends[1]) >= limit:
                return None
            found = sum(low for low, _ in known), sum(high for _, high in known)
        case sympy.Mul() | sympy.Pow():
            found = known[0]
            for factor in known[1:]:
                found = _product(found, factor)
                if max(-found[0], found[1]) >= limit:
                    return None
        case FloorDiv():
            (low, high), (least, most) = known
            known_divisor = least == most > 0
            found = (low // most, high // most) if known_divisor else (min(low, 0), max(high, 0))
        case Mod():
            (low, high), (_, part) = known
            found = 0, min(high, part - 1) if low >= 0 else part - 1
        case Min() | Max():
            choose = min if isinstance(index, Min) else max
            found = choose(low for low, _ in known), choose(high for _, high in known)
        case Select():
            found = min(low for low, _ in known[-2:]), max(high for _, high in known[-2:])
        case sympy.Abs():
            ((low, high),) = known
            found = max(low, -high, 0), max(-low, high)
        case _:
            return None
    return found if max(-found[0], found[1]) < limit else None


def _operands(index: sympy.Basic) -> Iterator[sympy.Basic]:
    """What `index` is computed from, a factor as often as it occurs."""
    if index.is_Pow:
        yield from (index.args[0],) * int(index.args[1])
    elif isinstance(index, Select):
        condition, *choices = index.args
        yield from (*condition.args, *choices)
    else:
        yield from index.args


def _most(extent: Extent) -> int:
    """What a loop's steps, or a dimension's elements, are at most."""
    if isinstance(extent, int):
        return max(extent, 1)
    found = _of(extent, {}, math.inf)
    return min(max(found[1], 1), INT32 - 1) if found else INT32 - 1


def _product(one: _Range, other: _Range) -> _Range:
    ends = [a * b for a in one for b in other]
    return min(ends), max(ends)
