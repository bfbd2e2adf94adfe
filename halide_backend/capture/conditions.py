"""What is known of coordinates within the loops of a kernel, whatever a mask says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Max, Min, ModularIndexing, Where

from halide_backend.capture.indexing import may_be_negative, value_range
from halide_backend.capture.sizes import extent, hint, is_size
from halide_backend.program.index import AxisSymbol
from halide_backend.program.loop_program import Extent, Steps

#: Steps at either end of a loop that are looked at: a filter of 7 x 7 reads 3 rows beyond.
_MOST_OUTSIDE = 4

#: Maxima and minima of a difference, each of which is looked at in turn.
_MOST_CHOICES = 4

#: Of a loop's steps, those that may be outside: of more there is little to gain.
_MOST_SHARE = 0.5

#: Elements of a row, with the twenty operations of a reflected one's gradient, of which a task has two.
_ROW_OF_TASK = 400


@dataclass(frozen=True)
class Bound:
    """What a mask says where it is true: `expression >= lower` and/or `expression < upper`."""

    expression: sympy.Expr
    lower: int | None = None
    upper: int | None = None

    @property
    def rooms(self) -> tuple[sympy.Expr, ...]:
        """What is not negative then."""
        above = () if self.lower is None else (self.expression - self.lower,)
        return above if self.upper is None else (*above, self.upper - 1 - self.expression)


def decided(
    operation: str,
    left: sympy.Expr,
    right: sympy.Expr,
    extents: Mapping[sympy.Symbol, Extent],
    bounds: Sequence[Bound] = (),
) -> bool | None:
    """What the comparison `operation` of two indices says for each symbol in [0, extent) within the `bounds` of a
    mask; None if that differs, or nobody knows."""
    match operation:
        case "lt":
            room = sympy.expand(right - left - 1)
        case "le":
            room = sympy.expand(right - left)
        case "gt" | "ge":
            return decided({"gt": "lt", "ge": "le"}[operation], right, left, extents, bounds)
        case _:
            return None
    known = [each for bound in bounds for each in bound.rooms]
    if _follows(room, extents, known):
        return True
    return False if _follows(-room - 1, extents, known) else None


def in_range(index: sympy.Expr, size: Extent, extents: Mapping[sympy.Symbol, Extent]) -> bool:
    """Whether `index` is in [0, size) at every step."""
    return bool(decided("le", sympy.Integer(0), index, extents) and decided("lt", index, size, extents))


def narrowed(
    operation: str,
    left: sympy.Expr,
    right: sympy.Expr,
    extents: Mapping[sympy.Symbol, Extent],
    bounds: Sequence[Bound] = (),
) -> tuple[sympy.Expr, sympy.Expr]:
    """Both sides of a comparison without those of a minimum that one is less than at every step, or of a maximum that
    is less than the other: x // 2 < min(n, x // 2 + 1), whether a window has an element, is x // 2 < n."""
    if operation in ("gt", "ge"):
        right, left = narrowed({"gt": "lt", "ge": "le"}[operation], right, left, extents, bounds)
    elif operation in ("lt", "le"):
        if isinstance(right, Min):
            limits = [each for each in right.args if not decided(operation, left, each, extents, bounds)]
            right = Min(*limits) if limits else right
        if isinstance(left, Max):
            limits = [each for each in left.args if not decided(operation, each, right, extents, bounds)]
            left = Max(*limits) if limits else left
    return left, right


def _follows(room: sympy.Expr, extents: Mapping[sympy.Symbol, Extent], known: Sequence[sympy.Expr]) -> bool:
    """Whether `room` is 0 or more, since it always is, or since it is not less than one of `known`."""
    more = (sympy.expand(room - each) for each in known)
    fixed = (each for each in more if each.free_symbols.isdisjoint(extents))
    return is_nonnegative(room, extents) or any(is_nonnegative(each, {}) for each in fixed)


def is_nonnegative(difference: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> bool:
    """Whether `difference` is known to be 0 or more for each symbol in [0, extent)."""
    span = value_range(difference, extents)
    if span is not None and (span[0] >= 0 or not any(map(is_size, difference.free_symbols))):
        return span[0] >= 0
    if _each_choice_is_nonnegative(difference, extents):
        return True
    # These bounds are those of each symbol by itself, but n - x is n - (n - 1) at least.
    most = {symbol: _at_most(size) for symbol, size in extents.items()}
    return _least_is_nonnegative(difference, extents) or (most != extents and _least_is_nonnegative(difference, most))


def _each_choice_is_nonnegative(difference: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> bool:
    """Whether `difference` is known to be 0 or more with what its maxima and minima may be."""
    choices = difference.atoms(Max, Min)
    if len(choices) > _MOST_CHOICES:
        return False
    for choice in choices:
        factor = difference.coeff(choice)
        # The lesser of several is each of them at the least; of the greater one is enough.
        every = all if isinstance(choice, Min) == (factor > 0) else any
        rest = difference - factor * choice
        if factor.is_Integer and every(is_nonnegative(sympy.expand(rest + factor * c), extents) for c in choice.args):
            return True
    return False


def _least_is_nonnegative(difference: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> bool:
    sizes = V.graph.sizevars
    difference, parts = _without_quotients(difference, extents)
    for symbol in difference.free_symbols & extents.keys():
        slope = difference.coeff(symbol)
        rest = sympy.expand(difference - slope * symbol)
        if symbol in rest.free_symbols:
            return False
        if sizes.statically_known_geq(slope, 0):
            difference = rest
        elif sizes.statically_known_leq(slope, 0):
            difference = sympy.expand(rest + slope * (extents[symbol] - 1))
        else:
            return False
    # A whole number that is more than -1.
    return bool(sizes.statically_known_geq(difference + parts - 1, 0))


def _without_quotients(difference: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> tuple[sympy.Expr, int]:
    """So many times the least that `difference` can be for each value of its quotients of coordinates by numbers."""
    parts = 1
    for quotient in difference.atoms(FloorDiv):
        whole, part = quotient.args
        factor = difference.coeff(quotient)
        if part.is_Integer and factor.is_Integer and whole.free_symbols & extents.keys():
            least = whole if factor < 0 else whole - part + 1
            difference = sympy.expand(part * (difference - factor * quotient) + factor * least)
            parts *= int(part)
    return difference, parts


def settled(index: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> sympy.Expr:
    """`index` with the one of each two that is their maximum or minimum at every step, if it is: of the last window of
    a pooling the end that is no further than that of its row."""

    def chosen(choice: sympy.Expr) -> sympy.Expr:
        # The strides of what may be empty are no steps (`indexing.without_empty`).
        if len(choice.args) == 2 and choice.free_symbols & extents.keys():
            one, other = choice.args
            for lesser, greater in ((one, other), (other, one)):
                if is_nonnegative(sympy.expand(greater - lesser), extents):
                    return lesser if isinstance(choice, Min) else greater
        return choice

    for choice in sorted(index.atoms(Max, Min), key=lambda each: each.count_ops()):
        if (found := chosen(choice)) is not choice:
            return settled(sympy.expand(index.xreplace({choice: found})), extents)
    return index


def with_c_remainders(index: sympy.Expr, extents: Mapping[sympy.Symbol, Extent]) -> sympy.Expr:
    """`index` with the remainders of C, which have the sign of what is divided, where that may be negative.

    A remainder of Inductor's indices means C's, a program's is Python's; of what is not negative they are the same.
    """

    def remainder(whole: sympy.Expr, part: sympy.Expr, modulus: sympy.Expr) -> sympy.Expr:
        if not may_be_negative(whole, extents) or is_nonnegative(whole, extents):
            return ModularIndexing(whole, part, modulus)
        divided = FloorDiv(whole, part)
        choices = -ModularIndexing(-divided, 1, modulus), ModularIndexing(divided, 1, modulus)
        return Where(sympy.Lt(divided, 0), *choices)

    return index.replace(ModularIndexing, remainder) if index.has(ModularIndexing) else index


def steps_inside(index: sympy.Expr, size: Extent, extents: Mapping[sympy.Symbol, Extent]) -> Steps | None:
    """Steps of a loop at which `index` is in [0, size) at every step of the others, None if there are few."""
    rest = sympy.expand(index)
    slopes: dict[sympy.Symbol, sympy.Expr] = {}
    for symbol in extents:
        slope = rest.coeff(symbol)
        if slope != 0:
            slopes[symbol] = slope
            rest = sympy.expand(rest - slope * symbol)
    parts = (rest, *slopes.values())
    if not all(is_size(symbol) for part in parts for symbol in part.free_symbols):
        return None
    rising = {symbol: _rises(slope) for symbol, slope in slopes.items()}
    if None in rising.values():
        return None
    found: list[tuple[float, Steps]] = []
    # Halide makes no cases of a loop that threads share, which the outermost one may be, but of the rows of a task.
    rows = list(slopes)[0 if _falls_in_short_rows(rising, extents) else 1 :]
    for row in [symbol for symbol in rows if isinstance(symbol, AxisSymbol)]:
        lowest, highest = rest, rest
        for symbol, slope in slopes.items():
            last = sympy.expand(slope * (_at_most(extents[symbol]) - 1))
            if symbol is not row:
                lowest, highest = (lowest, highest + last) if rising[symbol] else (lowest + last, highest)
        # How far inside the first step is, from the end that a falling index begins at, and how far the last one.
        first, last = (lowest, size - 1 - highest) if rising[row] else (size - 1 - highest, lowest)
        step = slopes[row] if rising[row] else -slopes[row]
        before = _outside(first, step)
        after = _outside(last - step * (_at_most(extents[row]) - 1), step)
        if before is not None and after is not None:
            share = (before + after) / hint(extents[row])
            if share < _MOST_SHARE:
                found.append((share, Steps(str(row), before, extent(extents[row] - after))))
    return min(found, key=lambda each: each[0])[1] if found else None


def _falls_in_short_rows(rising: Mapping[sympy.Symbol, bool | None], extents: Mapping[sympy.Symbol, Extent]) -> bool:
    """Whether an index of two loops falls along rows of which a task has several, as that of a reflected row: no other
    loop has steps at which it needs no clamp."""
    along = list(extents)[-1]
    return len(rising) == len(extents) == 2 and rising.get(along) is False and hint(extents[along]) <= _ROW_OF_TASK


def _rises(slope: sympy.Expr) -> bool | None:
    """Whether an index rises by `slope`, or falls; None if that is not known."""
    if is_nonnegative(slope, {}):
        return True
    return False if is_nonnegative(-slope, {}) else None


def _at_most(size: Extent) -> Extent:
    """`size`, or what is not less, without the rounding of its quotients."""
    if isinstance(size, int):
        return size
    most = sympy.Integer(0)
    for term in sympy.Add.make_args(sympy.expand(size)):
        factor, quotient = term.as_coeff_Mul()
        if isinstance(quotient, FloorDiv) and quotient.args[1].is_Integer:
            whole, part = quotient.args
            term = factor * (whole if factor > 0 else whole - part + 1) / part
        most += term
    return most


def _outside(room: sympy.Expr, step: sympy.Expr) -> int | None:
    """After how many steps from the end of a loop, where there is `room` besides, an index is in range.

    With each step the room grows by `step`, which is not negative.
    """
    counts = range(_MOST_OUTSIDE)
    return next((count for count in counts if is_nonnegative(sympy.expand(room + count * step), {})), None)
