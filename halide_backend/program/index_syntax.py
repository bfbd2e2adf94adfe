"""Index expressions as text and back: `x0*64 + x1 // 2`, in Python's syntax."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping

import sympy

from halide_backend.errors import ProgramError, Unsupported
from halide_backend.program.index import FloorDiv, Max, Min, Mod, Select

_FUNCTIONS = {"min": Min, "max": Max, "abs": sympy.Abs, "select": Select}


class IndexPrinter:
    """Prints index expressions; a dialect overrides the methods. Terms and factors come in an order of their own, not
    in sympy's, so that equal expressions have equal texts."""

    def text(self, index: sympy.Basic | int) -> str:
        """Python text of an integer index; `//` and `%` round down.

        Raises:
            Unsupported: a function that no program may contain.
        """
        if isinstance(index, int) or index.is_Integer:
            return str(int(index))
        if index.is_Symbol:
            return self.symbol(index)
        if index.is_Add:
            return f"({' + '.join(map(self.text, self.terms(index)))})".replace("+ -", "- ")
        if index.is_Mul:
            factors = sorted(index.args, key=lambda factor: (not factor.is_Integer, _order(factor)))
            return "*".join(map(self.text, factors))
        if index.is_Relational:
            left, right = map(self.text, index.args)
            return f"({left} {index.rel_op} {right})"
        # Behind // or % a product of sizes is one divisor (a dynamic reshape, wrong without).
        arguments = [f"({self.text(a)})" if a.is_Mul or a.is_Pow else self.text(a) for a in index.args]
        if isinstance(index, FloorDiv | Mod):
            return f"({arguments[0]} {'//' if isinstance(index, FloorDiv) else '%'} {arguments[1]})"
        if isinstance(index, Min | Max):
            name = "min" if isinstance(index, Min) else "max"
            return functools.reduce(lambda left, right: self.function(name, left, right), arguments)
        if isinstance(index, sympy.Abs):
            return self.function("abs", *arguments)
        if isinstance(index, Select):
            return self.function("select", *arguments)
        if index.is_Pow and index.args[1].is_Integer and int(index.args[1]) > 0:
            return "*".join([arguments[0]] * int(index.args[1]))
        raise Unsupported("index-function", f"{type(index).__name__} in {index}")

    def terms(self, index: sympy.Add) -> list[sympy.Expr]:
        """The terms of a sum in order."""
        return sorted(index.args, key=lambda term: (term.is_Integer, _order(term)))

    def symbol(self, symbol: sympy.Symbol) -> str:
        """The text of a symbol."""
        return str(symbol.name)

    def function(self, name: str, *arguments: str) -> str:
        """The text of `min`, `max`, `abs` or `select` of `arguments`."""
        return f"{name}({', '.join(arguments)})"


@functools.lru_cache(maxsize=1 << 12)
def _order(part: sympy.Expr) -> str:
    """What orders the terms and factors of an expression. A filter has hundreds of loads of the same terms, and sympy
    takes 0.1 ms to print one."""
    return str(part)


def print_index(index: sympy.Expr | int) -> str:
    """The text that `parse_index` reads."""
    return IndexPrinter().text(index)


def parse_index(text: str, symbols: Mapping[str, sympy.Symbol]) -> sympy.Expr:
    """The expression that `print_index` wrote, over `symbols` by name.

    Raises:
        ProgramError: `text` is no index expression, or has a name that is not in `symbols`.
    """
    try:
        return _expression(ast.parse(text, mode="eval").body, symbols)
    except (SyntaxError, KeyError, ValueError, TypeError) as error:
        raise ProgramError(f"{text!r} is no index expression: {error}", cure="write it as docs/design says") from error


_OPERATORS: dict[type, Callable[[sympy.Expr, sympy.Expr], sympy.Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: FloorDiv,
    ast.Mod: Mod,
    ast.Lt: sympy.Lt,
    ast.LtE: sympy.Le,
    ast.Gt: sympy.Gt,
    ast.GtE: sympy.Ge,
    ast.Eq: sympy.Eq,
    ast.NotEq: sympy.Ne,
}


def _expression(node: ast.expr, symbols: Mapping[str, sympy.Symbol]) -> sympy.Expr:
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return sympy.Integer(number)
        case ast.Name(id=name):
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_expression(operand, symbols)
        case ast.BinOp(left=left, op=operator, right=right):
            return _OPERATORS[type(operator)](_expression(left, symbols), _expression(right, symbols))
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _OPERATORS[type(operator)](_expression(left, symbols), _expression(right, symbols))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _FUNCTIONS[name](*(_expression(argument, symbols) for argument in arguments))
    raise ValueError(f"{ast.unparse(node)} has no meaning here")
