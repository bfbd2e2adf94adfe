"""Inductor's index functions as those of a program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import sympy
from torch.utils._sympy import functions as inductor

from halide_backend.errors import Unsupported
from halide_backend.program.index import FloorDiv, Max, Min, Mod, Select

_FUNCTIONS: dict[type, Callable[..., sympy.Expr]] = {
    inductor.FloorDiv: FloorDiv,
    inductor.CleanDiv: FloorDiv,
    inductor.ModularIndexing: lambda whole, part, modulus: Mod(FloorDiv(whole, part), modulus),
    inductor.Mod: Mod,
    inductor.PythonMod: Mod,
    inductor.Min: Min,
    inductor.Max: Max,
    # What average pooling has in torch 2.11.
    sympy.Min: Min,
    sympy.Max: Max,
    inductor.Where: Select,
    # It keeps sympy from multiplying an index out, which nobody does to one that is closed.
    inductor.Identity: lambda index: index,
    sympy.Abs: sympy.Abs,
    sympy.Pow: sympy.Pow,
}

_UNDIVIDED = (inductor.Min, inductor.Max, sympy.Min, sympy.Max, inductor.Where, inductor.Identity)


@functools.lru_cache(maxsize=4096)
def closed(index: sympy.Expr) -> sympy.Expr:
    """`index` with the functions of `program.index` in place of Inductor's.

    Raises:
        Unsupported: a function that a program cannot contain, or a divisor that may be negative.
    """
    if index.is_Atom:
        return index
    arguments = tuple(map(closed, index.args))
    kind: Any = type(index)
    if index.is_Add or index.is_Mul or index.is_Relational or index.is_Boolean:
        return index.func(*arguments) if arguments != index.args else index
    if kind not in _FUNCTIONS:
        raise Unsupported("index-function", f"{kind.__name__} in {index}")
    if kind not in _UNDIVIDED and not all(divisor.is_nonnegative for divisor in arguments[1:]):
        raise Unsupported("index-divisor-may-be-negative", f"a divisor in {index} may be negative")
    return _FUNCTIONS[kind](*arguments)
