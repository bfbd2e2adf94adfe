"""Which accesses move whole 32-bit words, several at a time."""

from __future__ import annotations

from functools import lru_cache

import sympy

from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol, FloorDiv, Mod, expanded

#: Accesses whose answers are kept, since each rule that is tried asks for them again. benchmarks/planning_time.py
#: measures what planning takes.
_KEPT = 4096

#: Bits of a word, and of the widest memory instruction.
WORD, VECTOR = 32, 128

#: Numbers that one instruction adds to memory, or half of them, if they begin at a multiple of their size.
ADDED_AT_ONCE = {"float32": 2, "float16": 4, "bfloat16": 4}


@lru_cache(_KEPT)
def is_contiguous(index: sympy.Expr, name: str) -> bool:
    """Whether `index` steps by one element along the axis `name`."""
    symbol = AxisSymbol(name)
    return symbol in index.free_symbols and symbol not in expanded(index - symbol).free_symbols


def runs_along(index: sympy.Expr, name: str) -> bool:
    """Whether `index` steps by one element along the axis `name`, but for jumps where one of several lines ends."""
    symbol = AxisSymbol(name)

    def steps(e: sympy.Expr, kind: type[sympy.Function]) -> bool:
        return isinstance(e, kind) and is_contiguous(e.args[0], name) and symbol not in e.args[1].free_symbols

    line = index.replace(lambda e: steps(e, FloorDiv), lambda e: sympy.Integer(0))
    return is_contiguous(line.replace(lambda e: steps(e, Mod), lambda e: symbol), name)


@lru_cache(_KEPT)
def in_chunks(index: sympy.Expr, name: str, elements: int) -> sympy.Expr:
    """`index` with quotients and remainders of whole chunks where a chunk of `elements` along the axis `name` does not
    straddle their jumps: over the chunk's number, the symbol `<name>_c`, instead of the axis.

    (8 c + e) // 4096 is c // 512 and (8 c + e) % 4096 is 8 (c % 512) + e, for 0 <= e < 8.
    """
    symbol, chunk = AxisSymbol(name), AxisSymbol(f"{name}_c")

    def chunks(whole: sympy.Expr, part: sympy.Expr) -> sympy.Expr | None:
        rest = expanded(whole - symbol)
        factors = [term.as_coeff_Mul()[0] for term in (*sympy.Add.make_args(rest), part)]
        aligned = all(factor.is_Integer and factor % elements == 0 for factor in factors)
        return None if symbol in rest.free_symbols or not aligned else expanded(chunk + rest / elements)

    def quotient(whole: sympy.Expr, part: sympy.Expr) -> sympy.Expr:
        number = chunks(whole, part)
        return FloorDiv(whole, part) if number is None else FloorDiv(number, part / elements)

    def remainder(whole: sympy.Expr, part: sympy.Expr) -> sympy.Expr:
        number = chunks(whole, part)
        return Mod(whole, part) if number is None else elements * (Mod(number, part / elements) - chunk) + symbol

    return index.replace(FloorDiv, quotient).replace(Mod, remainder) if index.has(FloorDiv, Mod) else index


def words_of(dtype: str, elements: int) -> int:
    """32-bit words that `elements` adjacent elements fill; 0 if they do not fill whole ones."""
    bits = elements * ELEMENT[dtype][1]
    return bits // WORD if bits % WORD == 0 else 0


@lru_cache(_KEPT)
def first_word(index: sympy.Expr, name: str, dtype: str, elements: int) -> sympy.Expr | None:
    """The word at which a chunk of `elements` begins, over the chunk's number, the symbol `<name>_c`.

    None unless the chunk is contiguous along the axis `name` and begins at a multiple of its own size or of a
    vector's, whatever the values of the other symbols.
    """
    words = words_of(dtype, elements)
    index = in_chunks(index, name, elements)
    if not words or not is_contiguous(index, name):
        return None
    symbol, chunk = AxisSymbol(name), AxisSymbol(f"{name}_c")
    start = expanded((index - symbol + elements * chunk) * ELEMENT[dtype][1])
    step = min(words * WORD, VECTOR)
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(start)]
    if not all(factor.is_Integer and factor % step == 0 for factor, _ in terms):
        return None
    return sympy.Add(*(factor // WORD * rest for factor, rest in terms))
