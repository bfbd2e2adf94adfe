"""Reductions of a few terms as expressions of these, as Inductor writes those of known lengths
(`torch._inductor.config.unroll_reductions_threshold`): vectors then run across rows, not along them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy

from halide_backend.program.applications import without_applications
from halide_backend.program.index import AxisSymbol, ValueSymbol, values_of
from halide_backend.program.loop_program import Apply, Axis, Load, LoopProgram, Number, Reduction, Scan, Store, Value

#: Terms of an expression at most; and how two of them are combined.
_TERMS, _COMBINED = 7, {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}

#: By what one term takes the place of those before it.
_BEFORE = {"argmax": "gt", "argmin": "lt"}


def without_short_reductions(program: LoopProgram, interleaved: int) -> LoopProgram:
    """`program` without the reductions over a few known terms, if it has no others along their axes.

    Args:
        interleaved: terms up to which rows along such an axis are stored by vectors across them, whose elements share
            what they are reduced to.
    """
    kept = {axis.name for value in program.values if not _is_short(value, program) for axis in _reduced(value)}
    stored = (axis for store in program.stores for axis in store.nest.axes)
    # A check runs along axes that only a reduction has.
    kept |= {axis for check in program.checks for axis in program.values[check.condition].axes}
    kept |= {axis.name for axis in stored if not isinstance(axis.extent, int) or axis.extent > interleaved}
    written, found = _Written(), dict[int, int]()
    for position, value in enumerate(program.values):
        operands = tuple(found[operand] for operand in value.operands)
        if isinstance(value.attribute, Reduction) and not kept & {axis.name for axis in value.attribute.axes}:
            found[position] = written.reduction(value, value.attribute, operands)
        else:
            attribute = _renamed(value.attribute, _symbols(found))
            found[position] = written.add(value.operation, value.dtype, operands, attribute)
    if len(written.values) == len(program.values):
        return program
    unrolled = without_unused(without_applications(_with_values(program, written.values, found)))
    return unrolled if any(map(_reduced, unrolled.values)) else replace(unrolled, outer=_common(unrolled.stores))


@dataclass
class _Written:
    values: list[Value] = field(default_factory=list)

    def add(self, operation: str, dtype: str, operands: tuple[int, ...] = (), attribute: object = None) -> int:
        self.values.append(Value.of(operation, dtype, operands, attribute, self.values))
        return len(self.values) - 1

    def reduction(self, value: Value, reduction: Reduction, operands: tuple[int, ...]) -> int:
        """The position of what combines the terms of a reduction."""
        dtype, points = self.values[operands[0]].dtype, list(_points(reduction.axes))
        terms = [self.add("apply", dtype, operands, Apply(at)) for at in points]
        if reduction.kind in _COMBINED:
            combined = _COMBINED[reduction.kind]
            return functools.reduce(lambda left, right: self.add(combined, dtype, (left, right)), terms)
        assert reduction.position is not None
        places = (reduction.position.xreplace({AxisSymbol(axis): at for axis, at in point}) for point in points)
        numbers = [self.add("constant", value.dtype, attribute=Number.of(int(place))) for place in places]
        best, where = terms[0], numbers[0]
        for term, number in zip(terms[1:], numbers[1:]):
            taken = self._before(reduction.kind, dtype, term, best)
            best = self.add("where", dtype, (taken, term, best))
            where = self.add("where", value.dtype, (taken, number, where))
        return where

    def _before(self, kind: str, dtype: str, term: int, best: int) -> int:
        """Whether a term takes the place of the best one before it: NaN is better than all numbers."""
        better = self.add(_BEFORE[kind], "bool", (term, best))
        if "float" not in dtype:
            return better
        is_nan, is_number = self.add("ne", "bool", (term, term)), self.add("eq", "bool", (best, best))
        first_nan = self.add("logical_and", "bool", (is_nan, is_number))
        return self.add("logical_or", "bool", (better, first_nan))


def _is_short(value: Value, program: LoopProgram) -> bool:
    """Whether a value is a reduction of a few terms, of which two are combined by operations."""
    if not isinstance(value.attribute, Reduction) or value.attribute.kind not in _COMBINED | _BEFORE:
        return False
    operand = program.values[value.operands[0]].dtype
    alike = operand == value.dtype if value.attribute.kind in _COMBINED else operand != "bool"
    extents = [axis.extent for axis in value.attribute.axes]
    return alike and all(isinstance(each, int) for each in extents) and 0 < math.prod(extents) <= _TERMS


def _reduced(value: Value) -> tuple[Axis, ...]:
    return value.attribute.axes if isinstance(value.attribute, Reduction | Scan) else ()


def _points(axes: Sequence[Axis]) -> Iterator[tuple[tuple[str, sympy.Expr], ...]]:
    """The points of axes of known extents, as an `Apply` has them."""
    for point in itertools.product(*(range(int(axis.extent)) for axis in axes)):
        yield tuple((axis.name, sympy.Integer(at)) for axis, at in zip(axes, point))


def _common(stores: Sequence[Store]) -> tuple[Axis, ...]:
    """The outermost axes that the loops of all stores have in common."""
    levels = zip(*(store.nest.iteration for store in stores))
    return tuple(level[0] for level in itertools.takewhile(lambda level: len(set(level)) == 1, levels))


def without_unused(program: LoopProgram) -> LoopProgram:
    """`program` without values that nothing is made of, such as what was reduced."""
    stack = [store.value for store in program.stores] + [check.condition for check in program.checks]
    stack += [position for store in program.stores for position in values_of(store.index)]
    needed: set[int] = set()
    while stack:
        position = stack.pop()
        if position not in needed:
            needed.add(position)
            stack += program.values[position].operands
    written, found = _Written(), dict[int, int]()
    for position in sorted(needed):
        value = program.values[position]
        operands = tuple(found[operand] for operand in value.operands)
        attribute = _renamed(value.attribute, _symbols(found))
        found[position] = written.add(value.operation, value.dtype, operands, attribute)
    return _with_values(program, written.values, found)


def _with_values(program: LoopProgram, values: Iterable[Value], found: Mapping[int, int]) -> LoopProgram:
    """`program` with other `values`, among which its own are `found`."""
    symbols = _symbols(found)
    stores = (replace(s, value=found[s.value], index=s.index.xreplace(symbols)) for s in program.stores)
    checks = (replace(check, condition=found[check.condition]) for check in program.checks)
    return replace(program, values=tuple(values), stores=tuple(stores), checks=tuple(checks))


def _symbols(found: Mapping[int, int]) -> dict[sympy.Basic, sympy.Basic]:
    return {ValueSymbol.of(old): ValueSymbol.of(new) for old, new in found.items()}


def _renamed(attribute: object, symbols: Mapping[sympy.Basic, sympy.Basic]) -> object:
    """What a value needs besides values, where these have other positions."""
    match attribute:
        case Load():
            coordinates = tuple(replace(c, index=c.index.xreplace(symbols)) for c in attribute.coordinates)
            return replace(attribute, index=attribute.index.xreplace(symbols), coordinates=coordinates)
        case Apply():
            return Apply(tuple((axis, index.xreplace(symbols)) for axis, index in attribute.at))
        case sympy.Expr():
            return attribute.xreplace(symbols)
    return attribute
