"""Which accesses move whole 32-bit words, several at a time."""

from __future__ import annotations

import sympy

from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.index import AxisSymbol, FloorDiv, Mod

#: Bits of a word, and of the widest memory instruction.
WORD, VECTOR = 32, 128

#: Numbers that one instruction adds to memory, or half of them, if they begin at a multiple of their size.
ADDED_AT_ONCE = {"float32": 2, "float16": 4, "bfloat16": 4}


def is_contiguous(index: sympy.Expr, name: str) -> bool:
    """Whether `index` steps by one element along the axis `name`."""
    symbol = AxisSymbol(name)
    rest = sympy.expand(index - symbol)
    return symbol in index.free_symbols and symbol not in rest.free_symbols


def runs_along(index: sympy.Expr, name: str) -> bool:
    """Whether `index` steps by one element along the axis `name`, but for jumps where one of several lines ends."""
    symbol = AxisSymbol(name)
    line = index.replace(lambda e: isinstance(e, FloorDiv) and e.args[0] == symbol, lambda e: sympy.Integer(0))
    line = line.replace(lambda e: isinstance(e, Mod) and e.args[0] == symbol, lambda e: symbol)
    return is_contiguous(line, name)


def words_of(dtype: str, elements: int) -> int:
    """32-bit words that `elements` adjacent elements fill; 0 if they do not fill whole ones."""
    bits = elements * ELEMENT[dtype][1]
    return bits // WORD if bits % WORD == 0 else 0


def first_word(index: sympy.Expr, name: str, dtype: str, elements: int) -> sympy.Expr | None:
    """The word at which a chunk of `elements` begins, over the chunk's number, the symbol `<name>_c`.

    None unless the chunk is contiguous along the axis `name` and begins at a multiple of its own size or of a
    vector's, whatever the values of the other symbols.
    """
    words = words_of(dtype, elements)
    if not words or not is_contiguous(index, name):
        return None
    symbol, chunk = AxisSymbol(name), AxisSymbol(f"{name}_c")
    start = sympy.expand((index - symbol + elements * chunk) * ELEMENT[dtype][1])
    step = min(words * WORD, VECTOR)
    terms = [term.as_coeff_Mul() for term in sympy.Add.make_args(start)]
    if not all(factor.is_Integer and factor % step == 0 for factor, _ in terms):
        return None
    return sympy.Add(*(factor // WORD * rest for factor, rest in terms))
