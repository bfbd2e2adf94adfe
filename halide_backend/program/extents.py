"""Arithmetic of extents: numbers, or expressions over the sizes of a dynamic shape."""

from __future__ import annotations

import math
from collections.abc import Iterable

import sympy

from halide_backend.program.index import FloorDiv, expanded
from halide_backend.program.loop_program import Extent


def is_multiple(extent: Extent, of: int) -> bool:
    """Whether `of` divides `extent`, whatever the sizes in it are."""
    if isinstance(extent, int):
        return extent % of == 0
    factors = (term.as_coeff_Mul()[0] for term in sympy.Add.make_args(expanded(extent)))
    return all(factor.is_Integer and factor % of == 0 for factor in factors)


def ceil_div(extent: Extent, of: int) -> Extent:
    """`extent` divided by `of`, rounded up."""
    if isinstance(extent, int):
        return -(-extent // of)
    return expanded(extent / of) if is_multiple(extent, of) else FloorDiv(extent + (of - 1), of)


def product(extents: Iterable[Extent]) -> Extent:
    """All of `extents` multiplied: an int if each of them is."""
    whole = math.prod(extents)
    return whole if isinstance(whole, int) else expanded(whole)
