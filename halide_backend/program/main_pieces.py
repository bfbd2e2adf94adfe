"""Indices that are linear during most steps of a loop: those of rolled, reflected and wrapped rows.

Such an index has remainders, absolute values or conditions, so a vector gathers its elements one by one. A load that
names the linear index and the condition under which it holds lets Halide make a loop of its own of these steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy

from halide_backend.program.index import AxisSymbol, FloorDiv, Max, Min, Mod, Select, SizeSymbol, expanded
from halide_backend.program.loop_program import Axis, Load, LoopProgram, Piece, Steps

_FUNCTIONS = (FloorDiv, Max, Min, Mod, Select, sympy.Abs)

#: Steps of a loop during which the index has to be linear, two vectors of AVX-512, and their share of all: the others
#: gather, and need a second and a third copy of the loop.
LEAST_STEPS, LEAST_SHARE = 32, 0.5

#: Elements side by side that read the same one in an image that is enlarged, or in the gradient of pooling.
_LARGEST_STEP = 4


def with_main_pieces(program: LoopProgram, along: str) -> LoopProgram:
    """`program` with the linear piece of each index that is one during most of the loop along axis `along`, or during
    most rows along it."""
    axis = next((axis for axis in program.axes if axis.name == along), None)
    if axis is None:
        return program
    typical = {each.extent: each.hint for each in program.axes if isinstance(each.extent, SizeSymbol)}
    typical |= {size.value: size.hint for size in program.sizes if size.hint is not None and size.value.is_Symbol}
    values = []
    for value in program.values:
        load = value.attribute
        if isinstance(load, Load):
            # Where a mask is false, the index of a piece may be out of range.
            masked = any(program.values[operand].dtype == "bool" for operand in value.operands)
            piece = _inside(load, axis) if masked else main_piece(load.index, axis, typical)
            value = replace(value, attribute=replace(load, main=piece)) if piece else value
        values.append(value)
    return replace(program, values=tuple(values))


def _inside(load: Load, along: Axis) -> Piece | None:
    """The steps of a masked load without a clamp, unless it is clamped for each row alone, and not along it."""
    clamped = [c.index for c in load.coordinates if c.extent != 0]
    if load.inside is None or (clamped and not any(along.symbol in index.free_symbols for index in clamped)):
        return None
    return Piece(load.inside, load.index)


def main_piece(index: sympy.Expr, axis: Axis, typical: Mapping[sympy.Symbol, int]) -> Piece | None:
    """The linear piece of `index` in the middle of the loop along `axis`, None if it is short.

    The `typical` sizes say which piece that is; it is right for all sizes, and may be empty.
    """
    functions = _functions(index, axis.symbol)
    known = {symbol for function in functions for symbol in function.free_symbols}
    if not functions or not all(symbol == axis.symbol or symbol in typical for symbol in known):
        return None
    search = _Search(axis.symbol, {**typical, axis.symbol: axis.hint // 2})
    try:
        linear = expanded(index.xreplace({function: search.linear(function) for function in functions}))
    except _NoPieceError:
        return None
    quotients = [part for part in linear.atoms(FloorDiv) if axis.symbol in part.free_symbols]
    slope = linear.coeff(quotients[0] if len(quotients) == 1 else axis.symbol)
    if abs(slope) != 1 or linear == index or len(quotients) > 1:
        return None
    first = max([0, *map(search.number, search.lowest)])
    last = min([axis.hint - 1, *map(search.number, search.highest)])
    if last - first + 1 < max(LEAST_STEPS, LEAST_SHARE * axis.hint):
        return None
    end = Min(*(expanded(highest + 1) for highest in search.highest)) if search.highest else axis.extent
    return Piece(Steps(axis.name, Max(0, *search.lowest), end), linear)


def _functions(index: sympy.Expr, axis: AxisSymbol) -> list[sympy.Expr]:
    """The functions within `index` that depend on `axis`, of nested ones the outermost."""
    if isinstance(index, _FUNCTIONS):
        return [index] if axis in index.free_symbols else []
    return [function for argument in index.args for function in _functions(argument, axis)]


class _NoPieceError(Exception):
    """What holds in the middle of the loop is no range of its steps."""


class _Search:
    """Replaces functions by what they are at the point `at`, and collects where along `axis` they are: from each of
    `lowest` on, up to each of `highest`."""

    def __init__(self, axis: AxisSymbol, at: Mapping[sympy.Symbol, int]) -> None:
        self._axis, self._at = axis, dict(at)
        # Where all sizes are known, so are the elements of each vector.
        self._keeps_steps = len(at) > 1
        self.lowest: set[sympy.Expr] = set()
        self.highest: set[sympy.Expr] = set()

    def number(self, expression: sympy.Expr) -> int:
        """The value of an expression at the point."""
        return int(expression.xreplace(self._at))

    def linear(self, expression: sympy.Expr) -> sympy.Expr:
        """What `expression` is at the point and around it.

        Raises:
            _NoPieceError: it has no form there that these steps can be found for.
        """
        if self._axis not in expression.free_symbols or expression == self._axis:
            return expression
        if isinstance(expression, Select):
            condition, *choices = expression.args
            return self.linear(choices[0 if self._relation(condition) else 1])
        arguments = [self.linear(argument) for argument in expression.args]
        match expression:
            case sympy.Abs():
                (inner,) = arguments
                return self._holds(inner if self.number(inner) >= 0 else -inner)
            case Mod() | FloorDiv():
                whole, part = arguments
                if self._axis in part.free_symbols:
                    raise _NoPieceError
                if isinstance(expression, FloorDiv) and self._is_step(whole, part):
                    return FloorDiv(whole, part)
                quotient = self.number(whole) // self.number(part)
                rest = self._holds(expanded(whole - quotient * part))
                self._holds(expanded(part - 1 - rest))
                return rest if isinstance(expression, Mod) else sympy.Integer(quotient)
            case Max() | Min():
                sign = 1 if isinstance(expression, Max) else -1
                chosen = max(arguments, key=lambda each: sign * self.number(each))
                for other in arguments:
                    self._holds(expanded(sign * (chosen - other)))
                return chosen
        return expression.func(*arguments)

    def _relation(self, relation: sympy.Rel) -> bool:
        """Whether a comparison holds at the point; the steps at which it has the same result are collected."""
        left, right = (self.linear(side) for side in relation.args)
        least = {sympy.Lt: left - right + 1, sympy.Le: left - right, sympy.Gt: right - left + 1, sympy.Ge: right - left}
        difference = least.get(relation.func)
        if difference is None:
            raise _NoPieceError
        holds = self.number(difference) <= 0
        self._holds(expanded(-difference if holds else difference - 1))
        return holds

    def _is_step(self, whole: sympy.Expr, part: sympy.Expr) -> bool:
        """Whether `part` elements side by side have the same quotient, each such number of them another one."""
        rest = expanded(whole - self._axis)
        return self._keeps_steps and part.is_Integer and part <= _LARGEST_STEP and self._axis not in rest.free_symbols

    def _step_holds(self, expression: sympy.Expr, steps: list[FloorDiv]) -> None:
        """The same as `_holds` of an expression with `steps`."""
        signs = [expression.coeff(step) for step in steps]
        rest = expanded(expression - sum(sign * step for sign, step in zip(signs, steps)))
        parts = {step.args[1] for step in steps}
        offsets = [expanded(step.args[0] - self._axis) for step in steps]
        if self._axis in rest.free_symbols or len(parts) > 1:
            raise _NoPieceError
        (part,) = parts
        if signs == [1]:
            self.lowest.add(expanded(-part * rest - offsets[0]))
        elif signs == [-1]:
            self.highest.add(expanded(part * rest + part - 1 - offsets[0]))
        elif set(signs) == {1, -1} and len(signs) == 2 and all(each.is_Integer for each in offsets):
            # How far two such quotients are apart repeats itself.
            least = min(sum(s * ((x + o) // part) for s, o in zip(signs, offsets)) for x in range(int(part)))
            if not (least + rest).is_nonnegative:
                raise _NoPieceError
        else:
            raise _NoPieceError

    def _holds(self, expression: sympy.Expr) -> sympy.Expr:
        """Collect where `expression`, which is not negative at the point, is not."""
        steps = [each for each in expression.atoms(FloorDiv) if self._axis in each.free_symbols]
        if steps:
            self._step_holds(expression, steps)
            return expression
        slope = expression.coeff(self._axis)
        rest = expanded(expression - slope * self._axis)
        if self._axis in rest.free_symbols or abs(slope) > 1 or not slope.is_Integer:
            raise _NoPieceError
        if slope == 1:
            self.lowest.add(expanded(-rest))
        elif slope == -1:
            self.highest.add(rest)
        elif not rest.is_nonnegative:
            raise _NoPieceError
        return expression
