"""Index expressions: sympy over integers, with the functions and symbols that a program may contain and no others.

sympy's own `Mod`, `Min`, `Max` and `floor` rewrite themselves when they are built; these hold still, so that a program
means and prints the same in every version of sympy and torch.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sympy


class AxisSymbol(sympy.Symbol):
    """The coordinate along a loop axis: an integer in [0, extent)."""

    __slots__ = ()

    def __new__(cls, name: str, **_: Any) -> AxisSymbol:
        return super().__new__(cls, name, integer=True, nonnegative=True)  # type: ignore[no-any-return]


class ValueSymbol(sympy.Symbol):
    """An index that data hold: the value at `position` of the program, an integer in [0, size) of its dimension."""

    __slots__ = ()

    def __new__(cls, name: str, **_: Any) -> ValueSymbol:
        return super().__new__(cls, name, integer=True, nonnegative=True)  # type: ignore[no-any-return]

    @staticmethod
    def of(position: int) -> ValueSymbol:
        """The symbol of the value at `position`."""
        return ValueSymbol(f"v{position}")

    @property
    def position(self) -> int:
        """The value's position in the program."""
        return int(self.name[1:])


class SizeSymbol(sympy.Symbol):
    """A number that is known when the kernel is called: an integer, not negative where it is an extent."""

    __slots__ = ()

    def __new__(cls, name: str, *, nonnegative: bool | None = None, **_: Any) -> SizeSymbol:
        known = {"nonnegative": True} if nonnegative else {}
        return super().__new__(cls, name, integer=True, **known)  # type: ignore[no-any-return]


class _Integer(sympy.Function):
    is_integer = True

    def _sympystr(self, printer: Any) -> str:
        return f"{type(self).__name__}({', '.join(map(printer.doprint, self.args))})"


class FloorDiv(_Integer):
    """A quotient rounded down; the divisor is positive."""

    nargs = (2,)

    @classmethod
    def eval(cls, whole: sympy.Expr, part: sympy.Expr) -> sympy.Expr | None:
        if whole.is_zero or part == 1:
            return whole
        return sympy.Integer(int(whole) // int(part)) if whole.is_Integer and part.is_Integer else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if all(argument.is_nonnegative for argument in self.args) else None

    def _sympystr(self, printer: Any) -> str:
        return f"({printer.doprint(self.args[0])}//{printer.doprint(self.args[1])})"


class Mod(_Integer):
    """The remainder of `FloorDiv`, in [0, divisor)."""

    nargs = (2,)
    is_nonnegative = True

    @classmethod
    def eval(cls, whole: sympy.Expr, part: sympy.Expr) -> sympy.Expr | None:
        if whole.is_zero or part == 1:
            return sympy.Integer(0)
        return sympy.Integer(int(whole) % int(part)) if whole.is_Integer and part.is_Integer else None


class Min(_Integer):
    """The least of its arguments."""

    @classmethod
    def eval(cls, *arguments: sympy.Expr) -> sympy.Expr | None:
        return min(arguments) if all(argument.is_Integer for argument in arguments) else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if all(argument.is_nonnegative for argument in self.args) else None


class Max(_Integer):
    """The greatest of its arguments."""

    @classmethod
    def eval(cls, *arguments: sympy.Expr) -> sympy.Expr | None:
        return max(arguments) if all(argument.is_Integer for argument in arguments) else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if any(argument.is_nonnegative for argument in self.args) else None


class Select(_Integer):
    """`Select(condition, then, otherwise)`; the condition is a relation of sympy's."""

    nargs = (3,)

    @classmethod
    def eval(cls, condition: sympy.Basic, then: sympy.Expr, otherwise: sympy.Expr) -> sympy.Expr | None:
        return {sympy.true: then, sympy.false: otherwise}.get(condition)

    def _eval_is_nonnegative(self) -> bool | None:
        return True if all(argument.is_nonnegative for argument in self.args[1:]) else None


#: Expressions whose expanded forms are kept: the rules and checks of a kernel ask for the same ones.
_KEPT = 4096


@lru_cache(_KEPT)
def expanded(expression: sympy.Expr) -> sympy.Expr:
    """`expression` with products of sums multiplied out: `sympy.expand`, which is not asked where there are none."""
    return sympy.expand(expression) if _multiplies_sums(expression) else expression


def _multiplies_sums(expression: sympy.Basic) -> bool:
    if expression.is_Pow or (expression.is_Mul and any(factor.is_Add for factor in expression.args)):
        return True
    return any(_multiplies_sums(argument) for argument in expression.args)


def axes_of(index: sympy.Expr) -> frozenset[str]:
    """Names of the axes that `index` depends on."""
    return frozenset(symbol.name for symbol in index.free_symbols if isinstance(symbol, AxisSymbol))


def values_of(index: sympy.Expr) -> list[int]:
    """Positions of the values that `index` is computed from, in order."""
    return sorted(symbol.position for symbol in index.free_symbols if isinstance(symbol, ValueSymbol))


def sizes_of(index: sympy.Expr) -> list[SizeSymbol]:
    """The sizes that `index` depends on, by name."""
    return sorted((symbol for symbol in index.free_symbols if isinstance(symbol, SizeSymbol)), key=str)
