"""Scans by a thread group: each thread scans its chunks, the lanes of a warp exchange their totals, then the warps.

A tuple of components is one element of a scan. `combine` makes one of an earlier and of a later element; it is
associative, and nothing else: it need not commute, and has no neutral element. So what has no predecessor is selected
rather than combined with something.
"""

from __future__ import annotations

import halide as hl

from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.intrinsics import beside
from halide_backend.kernel_library.scans import Combine, Element, defined, element

__all__ = [
    "beside",
    "beside_each",
    "carried",
    "chosen",
    "defined",
    "element",
    "joined",
    "kept",
    "lanes_before",
    "of_lane",
    "of_shared",
    "of_warps",
    "over_lanes",
    "shared",
]


def over_lanes(combine: Combine, values: Element, lane: hl.Var, distance: hl.Expr) -> Element:
    """One step of a scan over lanes: `values` of the last `distance` lanes become those of twice as many."""
    return joined(combine, lanes_before(values, distance), hl.Expr(lane) >= distance, values)


def lanes_before(values: Element, distance: hl.Expr) -> Element:
    """`values` of the lane whose number is less by `distance`; of lanes that have none, anything."""
    return tuple(intrinsics.of_lane_before(value, distance) for value in values)


def of_lane(values: Element, lane: hl.Expr, lanes: int) -> Element:
    """`values` of the lane with number `lane` among every `lanes` adjacent ones."""
    return tuple(intrinsics.of_lane(value, lane, lanes) for value in values)


def of_warps(values: Element, warp: hl.Var, lane: hl.Var, number: int) -> Element:
    """To lane k of every warp the `values` of the k-th one, whose lanes have them equal; to lanes beyond, anything.

    They are exchange number `number` of the kernel and those that follow.
    """
    places = hl.Expr(warp), hl.Expr(lane)
    return tuple(intrinsics.of_warp(value, *places, number + k) for k, value in enumerate(values))


def shared(values: Element, index: hl.Expr, room: int, end: int) -> hl.Expr:
    """The address of the block's shared words, after every thread has put the words of its `values` there: the first
    one at `index`, each further one `room` later; `end` is beyond all words of the exchange."""
    return intrinsics.shared([word for value in values for word in intrinsics.words(value)], index, room, end)


def of_shared(like: Element, address: hl.Expr, index: hl.Expr, room: int) -> Element:
    """The values, of the types of `like`, that a thread has put at `index` of the shared words at `address`."""
    number, found = 0, []
    for each in like:
        count = 2 if each.type().bits() == 64 else 1
        read = [intrinsics.of_shared(address, index + (number + k) * room) for k in range(count)]
        found.append(intrinsics.of_words(each.type(), read))
        number += count
    return tuple(found)


def carried(like: Element, number: hl.Expr | int, after: hl.Var) -> Element:
    """What `kept` was given last under the same `number`, a constant; `after` is the loop from whose iterations to the
    next it is carried. Of its first iteration it is anything."""
    found = []
    for k, each in enumerate(like):
        read = [
            intrinsics.carried(number + 2 * k + half, after) for half in range(2 if each.type().bits() == 64 else 1)
        ]
        found.append(intrinsics.of_words(each.type(), read))
    return tuple(found)


def kept(values: Element, number: hl.Expr | int) -> Element:
    """`values`, which are carried to the next iteration."""
    return tuple(
        intrinsics.of_words(
            value.type(),
            [intrinsics.kept(word, number + 2 * k + half) for half, word in enumerate(intrinsics.words(value))],
        )
        for k, value in enumerate(values)
    )


def beside_each(values: Element, others: Element) -> Element:
    """`values`, where `others` are computed whatever becomes of `values`."""
    return tuple(beside(value, other) for value, other in zip(values, others, strict=True))


def joined(
    combine: Combine, first: Element, is_first: hl.Expr, second: Element, is_second: hl.Expr | None = None
) -> Element:
    """`first` and `second` combined where both are there, else the one that is; `second` is everywhere unless told."""
    both = chosen(is_first, combine(first, second), second)
    found = both if is_second is None else chosen(is_second, both, first)
    return (beside(beside(found[0], first[0]), second[0]), *found[1:])


def chosen(whether: hl.Expr, values: Element, others: Element) -> Element:
    """`values` where `whether` is true, else `others`."""
    return tuple(hl.select(whether, value, other) for value, other in zip(values, others, strict=True))
