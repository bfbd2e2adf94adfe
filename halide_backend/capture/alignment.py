"""Alignment: bring the loops of all nodes of a fused group onto one set of axes.

On CPU Inductor merges the loops of each node on its own, so a pointwise node arrives as (R*C) beside its reduction
sibling (R)(C). Here every node's loops are cut at the cumulative sizes that any other node has, so that equal stretches
of iteration space become the same named `Axis` and `softmax` is one nest with one row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing

from halide_backend.algorithm.loop_program import Axis, Nest
from halide_backend.errors import Unsupported

if TYPE_CHECKING:
    from torch._inductor.loop_body import LoopBody

#: A stretch of a flattened iteration space: the products of all loop extents up to its start and up to its end.
Stretch = tuple[int, int]


@dataclass(frozen=True)
class AlignedLoops:
    """The loops of one node over the group's axes.

    `iteration` and `reduction` hold, for each of the node's own loop variables, the expression over axis symbols that
    takes its place in the loop body.
    """

    nest: Nest
    iteration: tuple[sympy.Expr, ...]
    reduction: tuple[sympy.Expr, ...]


def static_sizes(body: LoopBody) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents of the iteration and the reduction loops.

    Raises:
        Unsupported: an extent is symbolic or zero.
    """
    sizes: list[tuple[int, ...]] = []
    for group in body.sizes:
        extents = []
        for extent in group:
            extent = V.graph.sizevars.simplify(sympy.sympify(extent))
            if not extent.is_Integer:
                raise Unsupported(f"dynamic shape: loop of extent {extent}")
            extents.append(int(extent))
        sizes.append(tuple(extents))
    if 0 in sizes[0] + sizes[1]:
        raise Unsupported("loop of extent 0")
    return sizes[0], sizes[1]


def align(bodies: Sequence[LoopBody]) -> tuple[tuple[AlignedLoops, ...], tuple[Axis, ...]]:
    """Loops of each body over common axes, and the row: the outermost axes that all of them share.

    Raises:
        Unsupported: a loop is not static.
    """
    sizes = [static_sizes(body) for body in bodies]
    stretches = [_stretches(*size) for size in sizes]
    pieces = [_cut(own, _cuts(stretches)) for own in stretches]
    if any(
        _harms(body, own, piece, size)
        for body, own, piece, size in zip(bodies, stretches, pieces, sizes)
    ):
        pieces = [[[stretch] for stretch in own] for own in stretches]
    names = _axes(pieces)
    loops = tuple(
        _loops(own, piece, size, names)
        for own, piece, size in zip(stretches, pieces, sizes)
    )
    return loops, _row([loop.nest for loop in loops])


def _stretches(iteration: Sequence[int], reduction: Sequence[int]) -> list[Stretch]:
    products = list(itertools.accumulate((*iteration, *reduction), lambda a, b: a * b, initial=1))
    return list(itertools.pairwise(products))


def _cuts(stretches: Sequence[Sequence[Stretch]]) -> list[int]:
    """Where any node starts a loop, or nothing if these products do not divide one another."""
    cuts = sorted({end for own in stretches for _, end in own})
    divides = all(b % a == 0 for a, b in itertools.pairwise(cuts))
    return cuts if divides else []


def _cut(own: Sequence[Stretch], cuts: Sequence[int]) -> list[list[Stretch]]:
    pieces = []
    for start, end in own:
        inner = [cut for cut in cuts if start < cut < end]
        pieces.append(list(itertools.pairwise([start, *inner, end])))
    return pieces


def _axes(pieces: Sequence[Sequence[Sequence[Stretch]]]) -> dict[Stretch, Axis]:
    found = {s for own in pieces for piece in own for s in piece if s[0] != s[1]}
    return {
        (start, end): Axis(f"x{number}", end // start)
        for number, (start, end) in enumerate(sorted(found))
    }


def _loops(
    own: Sequence[Stretch],
    pieces: Sequence[Sequence[Stretch]],
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
    names: dict[Stretch, Axis],
) -> AlignedLoops:
    substitutions = []
    axes: list[list[Axis]] = []
    for (_, end), piece in zip(own, pieces):
        expression = sympy.Integer(0)
        for stretch in piece:
            if stretch in names:
                expression += names[stretch].symbol * (end // stretch[1])
        substitutions.append(expression)
        axes.append([names[stretch] for stretch in piece if stretch in names])
    count = len(sizes[0])
    return AlignedLoops(
        nest=Nest(
            iteration=tuple(itertools.chain.from_iterable(axes[:count])),
            reduction=tuple(itertools.chain.from_iterable(axes[count:])),
        ),
        iteration=tuple(substitutions[:count]),
        reduction=tuple(substitutions[count:]),
    )


def _harms(
    body: LoopBody,
    own: Sequence[Stretch],
    pieces: Sequence[Sequence[Stretch]],
    sizes: tuple[tuple[int, ...], tuple[int, ...]],
) -> bool:
    """Whether cutting the loops of `body` adds a division or remainder to one of its indices."""
    if all(len(piece) == 1 for piece in pieces):
        return False
    loops = _loops(own, pieces, sizes, _axes([pieces]))
    replacement = dict(zip(body.var_ranges, (*loops.iteration, *loops.reduction)))
    ranges = {axis.symbol: axis.extent for axis in loops.nest.axes}

    def divisions(index: sympy.Expr) -> int:
        return len(index.atoms(FloorDiv, Mod, ModularIndexing))

    return any(
        divisions(simplify(sympy.sympify(index).subs(replacement), ranges)) > divisions(sympy.sympify(index))
        for index in body.indexing_exprs.values()
    )


def simplify(index: sympy.Expr, ranges: dict[sympy.Symbol, int]) -> sympy.Expr:
    """`index` with everything folded that the ranges of its symbols allow."""
    index = V.graph.sizevars.simplify_with_ranges(
        sympy.sympify(index), {symbol: sympy.Integer(extent) for symbol, extent in ranges.items()}
    )
    return sympy.expand(index)


def _row(nests: Sequence[Nest]) -> tuple[Axis, ...]:
    row = []
    for axes in zip(*(nest.iteration for nest in nests)):
        if any(axis != axes[0] for axis in axes):
            break
        row.append(axes[0])
    return tuple(row)
