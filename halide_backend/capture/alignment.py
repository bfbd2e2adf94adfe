"""Alignment: bring the loops of all nodes of a fused group onto one set of axes.

On CPU Inductor merges the loops of each node on its own, so a pointwise node arrives as (R*C) beside its reduction
sibling (R)(C). Here every node's loops are cut at the cumulative sizes that any other node has, so that equal stretches
of iteration space become the same named `Axis` and `softmax` is one nest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Mod, ModularIndexing

from halide_backend.capture.indexing import with_short_remainders
from halide_backend.capture.sizes import MAX_ELEMENTS, extent, hint, quotient, reduced
from halide_backend.errors import Unsupported
from halide_backend.program.loop_program import Axis, Extent, Nest

if TYPE_CHECKING:
    from torch._inductor.loop_body import LoopBody

#: A stretch of a flattened iteration space: the products of all loop extents up to its start and up to its end.
Stretch = tuple[Extent, Extent]

#: Steps of a remainder from which vectors along it pay: as many as a vector has of the narrowest elements.
_LONG_REMAINDER = 32

#: Elements that are added to memory together: a vector of AVX-512.
_LANES = 16

#: Elements of a row that are interleaved: half a vector of AVX-512.
_SHORT_ROW = 8


@dataclass(frozen=True)
class AlignedLoops:
    """The loops of one node over the group's axes.

    `iteration` and `reduction` hold, for each of the node's own loop variables, the expression over axis symbols that
    takes its place in the loop body.
    """

    nest: Nest
    iteration: tuple[sympy.Expr, ...]
    reduction: tuple[sympy.Expr, ...]


@dataclass(frozen=True)
class NodeLoops:
    """A loop body and the extents of its iteration and its reduction loops, outermost first."""

    body: LoopBody
    iteration: tuple[Extent, ...]
    reduction: tuple[Extent, ...]

    @staticmethod
    def of(body: LoopBody, iteration: Sequence[Any], reduction: Sequence[Any]) -> NodeLoops:
        """Simplify the extents.

        Raises:
            Unsupported: one of them is zero; there is nothing to compute, and no kernel for it.
        """
        loops = NodeLoops(body, tuple(map(extent, iteration)), tuple(map(extent, reduction)))
        if 0 in loops.iteration + loops.reduction:
            raise Unsupported("empty-loop", f"loops of extents {loops.iteration} and {loops.reduction}")
        return loops


def align(nodes: Sequence[NodeLoops], *, divided: bool = False) -> tuple[tuple[AlignedLoops, ...], tuple[Axis, ...]]:
    """Loops of each node over common axes, and the outermost axes that all of them share.

    A loop is also cut where an index divides its variable, so that the index has no division: with `divided` wherever
    there is one, else where the remainder is long and no memory is adjacent along the loop, or where it is short.
    """
    stretches = [_stretches(node) for node in nodes]
    wanted = [_divided(node, own, everywhere=divided) for node, own in zip(nodes, stretches)]
    cuts = _cuts([*stretches, *wanted]) or _cuts(stretches)
    lone = [_lone_ends(number, nodes, stretches) for number in range(len(nodes))]
    pieces = [_cut(own, [cut for cut in cuts if cut not in ends]) for own, ends in zip(stretches, lone)]
    if any(_harms(node, own, piece) for node, own, piece in zip(nodes, stretches, pieces)):
        pieces = [[[stretch] for stretch in own] for own in stretches]
    names = _axes(pieces)
    loops = tuple(_loops(own, piece, len(node.iteration), names) for node, own, piece in zip(nodes, stretches, pieces))
    return loops, _outer([loop.nest for loop in loops])


def _stretches(node: NodeLoops) -> list[Stretch]:
    products: list[Extent] = [1]
    for size in node.iteration + node.reduction:
        products.append(extent(sympy.expand(products[-1] * sympy.sympify(size))))
    return list(itertools.pairwise(products))


def _divided(node: NodeLoops, own: Sequence[Stretch], *, everywhere: bool) -> list[Stretch]:
    """What is left of a loop's stretch before the part of it that an index has as the remainder of a division."""
    found: list[Stretch] = []
    indices = [sympy.sympify(index) for index in node.body.indexing_exprs.values()]
    divisions = set().union(*(index.atoms(FloorDiv, ModularIndexing) for index in indices))
    if not divisions:
        return []
    added = _added(node)
    for number, (variable, (start, end)) in enumerate(zip(node.body.var_ranges, own)):
        across = number < len(node.iteration) and not _adjacent(indices, variable, node.body.var_ranges)
        for part in divisions:
            divisor = part.args[1] if isinstance(part, FloorDiv) else part.args[1] * part.args[2]
            if part.args[0] != variable:
                continue
            divisor = extent(divisor)
            left = quotient(end, divisor)
            pays = (
                everywhere
                or (across and hint(divisor) >= _LONG_REMAINDER)
                or _is_short_row(node, variable, part, divisor)
                or (hint(divisor) >= _LANES and any(index.has(part) for index in added))
            )
            if pays and left is not None and quotient(left, start) is not None:
                found.append((start, left))
    return found


def _is_short_row(node: NodeLoops, variable: sympy.Symbol, part: sympy.Expr, divisor: Extent) -> bool:
    """Whether `part` of an index is the place in a row of a few elements along the innermost loop, each of which comes
    from another line of memory: they are interleaved from vectors across the rows."""
    if node.reduction or variable != list(node.body.var_ranges)[-1] or not isinstance(part, ModularIndexing):
        return False
    return part.args[1] == 1 and isinstance(divisor, int) and divisor <= _SHORT_ROW


def _added(node: NodeLoops) -> list[sympy.Expr]:
    """Indices of what is added to memory: elements that lie side by side are added together, as those of a window."""
    body = node.body
    writes = (entry for entries in body.memory_usage.values() for entry in entries if entry.mode == "atomic_add")
    return [sympy.sympify(body.indexing_exprs[entry.index_name]) for entry in writes]


def _adjacent(indices: Sequence[sympy.Expr], variable: sympy.Symbol, loops: Iterable[sympy.Symbol]) -> bool:
    """Whether memory that is touched in all `loops` is adjacent along that of `variable`."""
    everywhere = (index for index in indices if index.free_symbols.issuperset(loops))
    return any(sympy.expand(index).coeff(variable) == 1 for index in everywhere)


def _cuts(stretches: Sequence[Sequence[Stretch]]) -> list[Extent]:
    """Where any node starts a loop, or nothing if these products do not divide one another."""
    cuts = sorted({end for own in stretches for _, end in own}, key=hint)
    divides = all(quotient(b, a) is not None for a, b in itertools.pairwise(cuts))
    return cuts if divides else []


def _lone_ends(number: int, nodes: Sequence[NodeLoops], stretches: Sequence[Sequence[Stretch]]) -> set[Extent]:
    """Where only reductions over fewer or more points than a node has end a loop: it shares no value with them."""
    own = {end for _, end in stretches[number]}
    shared: set[Extent] = set()
    lone: set[Extent] = set()
    for node, other in zip(nodes, stretches):
        iterated = [end for _, end in other[: len(node.iteration)]]
        ends = [end for _, end in other[len(node.iteration) :]]
        shared.update(iterated)
        (shared if own.issuperset(ends[-1:]) else lone).update(ends)
    return lone - shared


def _cut(own: Sequence[Stretch], cuts: Sequence[Extent]) -> list[list[Stretch]]:
    """Each of a node's loops in pieces that end at `cuts`; the cuts are in ascending order and divide one another."""
    pieces = []
    for start, end in own:
        if start == end or start not in (1, *cuts) or end not in cuts:
            pieces.append([(start, end)])
            continue
        first = cuts.index(start) + 1 if start in cuts else 0
        pieces.append(list(itertools.pairwise([start, *cuts[first : cuts.index(end)], end])))
    return pieces


def _axes(pieces: Sequence[Sequence[Sequence[Stretch]]]) -> dict[Stretch, Axis]:
    found = {s for own in pieces for piece in own for s in piece if s[0] != s[1]}
    ordered = sorted(found, key=lambda s: (hint(s[0]), hint(s[1]), str(s)))
    axes = {}
    for number, (start, end) in enumerate(ordered):
        steps = quotient(end, start)
        assert steps is not None, (start, end)
        if isinstance(steps, int) and steps > MAX_ELEMENTS:
            raise Unsupported("loop-too-long", f"a loop of {steps} steps, more than {MAX_ELEMENTS}")
        axes[start, end] = Axis(f"x{number}", steps, hint(steps))
    return axes


def _loops(
    own: Sequence[Stretch],
    pieces: Sequence[Sequence[Stretch]],
    count: int,
    names: dict[Stretch, Axis],
) -> AlignedLoops:
    substitutions = []
    axes: list[list[Axis]] = []
    for (_, end), piece in zip(own, pieces):
        expression = sympy.Integer(0)
        for stretch in piece:
            if stretch in names:
                expression += names[stretch].symbol * quotient(end, stretch[1])
        substitutions.append(expression)
        axes.append([names[stretch] for stretch in piece if stretch in names])
    return AlignedLoops(
        nest=Nest(
            iteration=tuple(itertools.chain.from_iterable(axes[:count])),
            reduction=tuple(itertools.chain.from_iterable(axes[count:])),
        ),
        iteration=tuple(substitutions[:count]),
        reduction=tuple(substitutions[count:]),
    )


def _harms(node: NodeLoops, own: Sequence[Stretch], pieces: Sequence[Sequence[Stretch]]) -> bool:
    """Whether cutting the loops of `node` adds a division or remainder to one of its indices."""
    if all(len(piece) == 1 for piece in pieces):
        return False
    body = node.body
    loops = _loops(own, pieces, len(node.iteration), _axes([pieces]))
    replacement = dict(zip(body.var_ranges, (*loops.iteration, *loops.reduction)))
    ranges: dict[sympy.Symbol, Extent] = {axis.symbol: axis.extent for axis in loops.nest.axes}

    def divisions(index: sympy.Expr) -> int:
        return len(index.atoms(FloorDiv, Mod, ModularIndexing))

    return any(
        divisions(simplify(sympy.sympify(index).subs(replacement), ranges)) > divisions(sympy.sympify(index))
        for index in body.indexing_exprs.values()
    )


def simplify(index: sympy.Expr, ranges: dict[sympy.Symbol, Extent]) -> sympy.Expr:
    """`index` with everything folded that the ranges of its symbols allow."""
    index = V.graph.sizevars.simplify_with_ranges(
        sympy.sympify(index), {symbol: sympy.sympify(size) for symbol, size in ranges.items()}
    )
    return reduced(sympy.expand(with_short_remainders(index, ranges)))


def _outer(nests: Sequence[Nest]) -> tuple[Axis, ...]:
    outer = []
    for axes in zip(*(nest.iteration for nest in nests)):
        if any(axis != axes[0] for axis in axes):
            break
        outer.append(axes[0])
    return tuple(outer)
