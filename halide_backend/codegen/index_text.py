"""Index expressions as Python text over Halide Vars."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import sympy

from halide_backend.errors import Unsupported


def index_text(index: sympy.Expr | int) -> str:
    """Python text of an int32 index; `//` and `%` round down, in sympy's floor functions and in Halide alike.

    Raises:
        Unsupported: a function that has no Halide form.
    """
    if isinstance(index, int) or index.is_Integer:
        return str(int(index))
    if index.is_Symbol:
        return str(index.name)
    if index.is_Add:
        terms = sorted(index.args, key=lambda term: (term.is_Integer, str(term)))
        text = " + ".join(index_text(term) for term in terms)
        return f"({text})".replace("+ -", "- ")
    if index.is_Mul:
        factors = sorted(index.args, key=lambda factor: (not factor.is_Integer, str(factor)))
        return "*".join(index_text(factor) for factor in factors)
    if index.is_Relational:
        left, right = map(index_text, index.args)
        return f"({left} {index.rel_op} {right})"
    # Behind // or % a product of sizes is one divisor (a dynamic reshape, wrong without).
    arguments = [f"({index_text(a)})" if a.is_Mul or a.is_Pow else index_text(a) for a in index.args]
    match type(index).__name__:
        case "FloorDiv" | "CleanDiv" | "ModularIndexing" | "Mod" | "PythonMod" if _may_be_negative(*index.args[1:]):
            # The remainder of Halide's division is never negative.
            raise Unsupported(f"a divisor that may be negative in {index}")
        case "FloorDiv" | "CleanDiv":
            return f"({arguments[0]} // {arguments[1]})"
        case "ModularIndexing":
            return f"(({arguments[0]} // {arguments[1]}) % {arguments[2]})"
        case "Mod" | "PythonMod":
            return f"({arguments[0]} % {arguments[1]})"
        case "Min" | "Max":
            name = type(index).__name__.lower()
            return functools.reduce(lambda a, b: f"hl.{name}({a}, {b})", arguments)
        case "Abs":
            return f"hl.max({arguments[0]}, -{arguments[0]})"
        case "Identity":
            return arguments[0]
        case "Where":
            return f"hl.select({', '.join(arguments)})"
        case "Pow" if index.args[1].is_Integer and int(index.args[1]) > 0:
            return "*".join([arguments[0]] * int(index.args[1]))
    raise Unsupported(f"index function {type(index).__name__} in {index}")


def factor_text(extent: sympy.Expr | int) -> str:
    """`extent` as Python text that may stand beside an operator."""
    return str(extent) if isinstance(extent, int) else f"({index_text(extent)})"


def _may_be_negative(*divisors: sympy.Expr) -> bool:
    return not all(sympy.sympify(divisor).is_nonnegative for divisor in divisors)


def with_indirect(text: str, operands: Iterable[int]) -> str:
    """Index text in which the symbols of indirect indices are the variables of their values."""
    for operand in sorted(operands, reverse=True):
        text = text.replace(f"j{operand}", f"t{operand}")
    return text
