"""Index expressions as Python text over Halide Vars."""

from __future__ import annotations

import sympy

from halide_backend.program.index import AxisSymbol, FloorDiv, Max, Min, Mod, SizeSymbol, ValueSymbol
from halide_backend.program.index_range import SMALL
from halide_backend.program.index_syntax import IndexPrinter


class _HalidePrinter(IndexPrinter):
    """int32 indices; an index that data hold is the variable of its value, `t` and its position."""

    def text(self, index: sympy.Basic | int) -> str:
        if isinstance(index, FloorDiv | Mod) and self.divides_by_sizes(index):
            name = "quotient" if isinstance(index, FloorDiv) else "remainder"
            whole, part = index.args
            return f"memory.{name}({', '.join(map(self.text, (whole, *_factors(part))))})"
        return super().text(index)

    def divides_by_sizes(self, index: FloorDiv | Mod) -> bool:
        """Whether a number that is not negative is divided by what depends on nothing but sizes."""
        whole, part = index.args
        return (
            bool(part.free_symbols)
            and all(isinstance(symbol, SizeSymbol) for symbol in part.free_symbols)
            and any(not isinstance(symbol, SizeSymbol) for symbol in whole.free_symbols)
            and bool(whole.is_nonnegative)
        )

    def symbol(self, symbol: sympy.Symbol) -> str:
        return f"t{symbol.position}" if isinstance(symbol, ValueSymbol) else str(symbol.name)

    def function(self, name: str, *arguments: str) -> str:
        if name == "abs":
            return f"hl.max({arguments[0]}, -{arguments[0]})"
        return f"hl.{name}({', '.join(arguments)})"


def _factors(part: sympy.Expr) -> list[sympy.Expr]:
    """Sizes and a number of which `part` is the product, or `part`."""
    factors = [each for power in sympy.Mul.make_args(part) for each in _powers(power)]
    factors.sort(key=lambda factor: (bool(factor.is_Integer), str(factor)))
    known = (isinstance(factor, SizeSymbol) or factor.is_Integer for factor in factors)
    return factors if all(known) and all(factor.is_nonnegative for factor in factors) else [part]


def _powers(power: sympy.Expr) -> list[sympy.Expr]:
    base, exponent = power.as_base_exp()
    return [base] * int(exponent) if exponent.is_Integer and exponent > 0 else [power]


class _StridePrinter(_HalidePrinter):
    """With terms from the smallest stride on, those that sizes are in last: Halide finds only of adjoining ones that
    13*(x // 13) + x % 13 is x."""

    def terms(self, index: sympy.Add) -> list[sympy.Expr]:
        def stride(term: sympy.Expr) -> tuple[bool, bool, int]:
            sized = any(isinstance(symbol, SizeSymbol) for symbol in term.free_symbols)
            return bool(term.is_Integer), sized, abs(int(term.as_coeff_Mul()[0]))

        return sorted(super().terms(index), key=stride)


class _NarrowPrinter(_HalidePrinter):
    """Quotients and remainders that int32 holds, by the product of a size and a number, which int32 need not hold: what
    is divided is divided by the size first."""

    def text(self, index: sympy.Basic | int) -> str:
        if isinstance(index, FloorDiv | Mod) and (product := _number_of_sizes(index.args[1])):
            number, size = product
            whole, part = self.text(index.args[0]), self.text(size)
            sizes = f"memory.quotient({whole}, {part})"
            if isinstance(index, FloorDiv):
                return f"({sizes} // {number})"
            return f"({sizes} % {number} * {part} + memory.remainder({whole}, {part}))"
        return super().text(index)


class _WidePrinter(_HalidePrinter):
    """The same in int64: loop coordinates fit into int32, what is computed from them need not."""

    def text(self, index: sympy.Basic | int) -> str:
        if isinstance(index, FloorDiv | Mod) and index.is_nonnegative and all(map(is_narrow, index.args)):
            return f"hl.cast(hl.Int(64), {_HalidePrinter().text(index)})"
        if _is_narrow_quotient(index):
            return f"hl.cast(hl.Int(64), {_NarrowPrinter().text(index)})"
        return super().text(index)

    def divides_by_sizes(self, index: FloorDiv | Mod) -> bool:
        return False

    def symbol(self, symbol: sympy.Symbol) -> str:
        return f"hl.cast(hl.Int(64), {super().symbol(symbol)})"


def is_narrow(index: sympy.Expr) -> bool:
    """Whether int32 holds it, as it holds extents: a coordinate, a size, a whole part or a remainder of one, the least
    or the greatest of such, and a small number more or less."""
    constant, rest = index.as_coeff_Add()
    if abs(constant) >= SMALL:
        return rest == 0 and bool(abs(constant) < 1 << 31)
    if isinstance(rest, FloorDiv | Mod):
        # One size, which int32 holds: a product of several need not fit.
        whole, part = rest.args
        sized = isinstance(part, SizeSymbol) and bool(part.is_nonnegative and whole.is_nonnegative)
        return (part.is_Integer or sized) and is_narrow(whole)
    if isinstance(rest, Max | Min):
        return all(map(is_narrow, rest.args))
    sized = isinstance(rest, SizeSymbol) and bool(rest.is_nonnegative)
    return rest == 0 or sized or isinstance(rest, AxisSymbol | ValueSymbol)


def _is_narrow_quotient(index: sympy.Basic | int) -> bool:
    """Whether int32 holds `index`, a quotient or remainder of what it holds, by numbers, sizes and their products."""
    if not isinstance(index, FloorDiv | Mod) or not index.is_nonnegative:
        return False
    whole, part = index.args
    by = bool(_number_of_sizes(part)) or is_narrow(part)
    return by and (_is_narrow_quotient(whole) or (is_narrow(whole) and bool(whole.is_nonnegative)))


def _number_of_sizes(part: sympy.Expr) -> tuple[int, sympy.Expr] | None:
    """The number of times that `part` has a size, more than once, and that size; None if it is anything else."""
    number, size = part.as_coeff_Mul()
    whole = number.is_Integer and 1 < number < SMALL and isinstance(size, SizeSymbol) and size.is_nonnegative
    return (int(number), size) if whole else None


def index_text(index: sympy.Expr | int, *, wide: bool = False) -> str:
    """Python text of an int32 index, or of an int64 one if `wide`; `//` and `%` round down, in Halide as in a program.

    Raises:
        Unsupported: a function that no program may contain.
    """
    return (_WidePrinter if wide else _HalidePrinter)().text(index)


def text_by_stride(index: sympy.Expr) -> str:
    """The text of an int32 index with its terms from the smallest stride on.

    Raises:
        Unsupported: as `index_text`.
    """
    return _StridePrinter().text(index)


def divided_texts(number: str, extent: sympy.Expr | int) -> tuple[str, str]:
    """Texts of the quotient and the remainder of `number`, which is not negative, and an extent."""
    if isinstance(extent, int):
        return f"({number} // {extent})", f"({number} % {extent})"
    parts = ", ".join(map(index_text, _factors(extent)))
    return f"memory.quotient({number}, {parts})", f"memory.remainder({number}, {parts})"
