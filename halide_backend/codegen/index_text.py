"""Index expressions as Python text over Halide Vars."""

from __future__ import annotations

import sympy

from halide_backend.program.index import ValueSymbol
from halide_backend.program.index_syntax import IndexPrinter


class _HalidePrinter(IndexPrinter):
    """int32 indices; an index that data hold is the variable of its value, `t` and its position."""

    def symbol(self, symbol: sympy.Symbol) -> str:
        return f"t{symbol.position}" if isinstance(symbol, ValueSymbol) else str(symbol.name)

    def function(self, name: str, *arguments: str) -> str:
        if name == "abs":
            return f"hl.max({arguments[0]}, -{arguments[0]})"
        return f"hl.{name}({', '.join(arguments)})"


class _WidePrinter(_HalidePrinter):
    """The same in int64: loop coordinates fit into int32, what is computed from them need not."""

    def symbol(self, symbol: sympy.Symbol) -> str:
        return f"hl.cast(hl.Int(64), {super().symbol(symbol)})"


def index_text(index: sympy.Expr | int, *, wide: bool = False) -> str:
    """Python text of an int32 index, or of an int64 one if `wide`; `//` and `%` round down, in Halide as in a program.

    Raises:
        Unsupported: a function that no program may contain.
    """
    return (_WidePrinter if wide else _HalidePrinter)().text(index)


def factor_text(extent: sympy.Expr | int) -> str:
    """`extent` as Python text that may stand beside an operator."""
    return str(extent) if isinstance(extent, int) else f"({index_text(extent)})"
