"""Reductions by a thread group: each thread reduces its share, the lanes of a warp exchange, warps meet in shared
memory."""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from halide_backend.kernel_library import reductions as portable
from halide_backend.kernel_library.cuda import intrinsics
from halide_backend.kernel_library.cuda.moments import (
    moments,
    moments_across_threads,
    no_moments,
    weighted_moments_across_threads,
    with_moments,
    with_weighted_moments,
)
from halide_backend.kernel_library.reductions import candidate, numbered, place

__all__ = [
    "across_block",
    "across_group",
    "across_lanes",
    "across_lines",
    "across_threads",
    "across_warp",
    "candidate",
    "combine",
    "decode",
    "encode",
    "initial",
    "moments",
    "moments_across_threads",
    "no_moments",
    "numbered",
    "place",
    "weighted_moments_across_threads",
    "with_moments",
    "with_weighted_moments",
]

LANES = 32
_SINGLE = hl.Float(32)


def encode(kind: str, value: hl.Expr) -> hl.Expr:
    """`value` as the type that the reduction `kind` accumulates: float32 maxima stay floats here."""
    return value if _native(kind, value.type()) else portable.encode(kind, value)


def initial(kind: str, encoded: hl.Expr) -> hl.Expr:
    """The value of an empty reduction, of the type of `encoded`."""
    if _native(kind, encoded.type()):
        return hl.f32(float("-inf") if kind == "max" else float("inf"))
    return portable.initial(kind, encoded)


def combine(kind: str, total: hl.Expr, value: hl.Expr) -> hl.Expr:
    """One step of the reduction."""
    if _native(kind, total.type()):
        return intrinsics.maximum(total, value) if kind == "max" else intrinsics.minimum(total, value)
    return portable.combine(kind, total, value)


def decode(kind: str, original: hl.Type, total: hl.Expr) -> hl.Expr:
    """The result, in the type of the reduced values."""
    return total if _native(kind, original) else portable.decode(kind, original, total)


def across_warp(kind: str, value: hl.Expr, lanes: int = LANES) -> hl.Expr:
    """The reduction of `value` over `lanes` adjacent lanes of a warp, in every one of them."""
    distance = lanes // 2
    while distance:
        value = combine(kind, value, intrinsics.across(value, distance))
        distance //= 2
    return value


def across_group(kind: str, value: hl.Expr, threads: int, number: int) -> hl.Expr:
    """The reduction of `value` over a group of `threads` threads, in every one of them; the `number`-th of a kernel.

    A thread group of more than a warp is a whole block, all of whose threads have to come here.
    """
    value = across_warp(kind, value, min(threads, LANES))
    if threads <= LANES:
        return value
    return _folded(kind, intrinsics.of_warps(value, threads // LANES, number))


def across_lines(
    kind: str, value: hl.Expr, threads: int, lines: int, thread: hl.Var, line: hl.Expr, first: int
) -> hl.Expr:
    """The reduction of `value` over the `threads` threads of each of the `lines` lines of a block, in every one of
    them. Neighbouring lanes have neighbouring lines: `line` is the number of a thread's own, `thread` its number among
    those of the line. Their warps meet in the words of shared memory from `first` on; all threads have to come here."""
    value = across_lanes(kind, value, lines)
    warps = threads * lines // LANES
    if warps == 1:
        return value
    room = warps * lines
    own = hl.Expr(thread) // (LANES // lines) * lines + line
    address = intrinsics.shared(intrinsics.words(value), first + own, room, first + 2 * room)
    parts = []
    for warp in range(warps):
        places = [first + warp * lines + line + k * room for k in range(len(intrinsics.words(value)))]
        parts.append(intrinsics.of_words(value.type(), [intrinsics.of_shared(address, place) for place in places]))
    return _folded(kind, parts)


def across_block(
    kind: str, warps: hl.Func, threads: int, rest: Sequence[hl.Expr | hl.Var], number: int | None = None
) -> hl.Expr:
    """The reduction of `warps[thread, *rest]`, or of the element `number` of its Tuple, which all threads of a warp
    have equal, over a block's warps."""
    return across_threads(kind, warps, threads, 1, rest, number)


def across_lanes(kind: str, value: hl.Expr, columns: int) -> hl.Expr:
    """The reduction of `value` over the lanes of a warp that have the same of `columns` columns, in every one of them:
    those whose numbers differ by a multiple of `columns`, a power of two."""
    distance = columns
    while distance < LANES:
        value = combine(kind, value, intrinsics.across(value, distance))
        distance *= 2
    return value


def across_threads(
    kind: str,
    own: hl.Func,
    threads: int,
    columns: int,
    rest: Sequence[hl.Expr | hl.Var],
    number: int | None = None,
) -> hl.Expr:
    """The reduction of `own[thread, *rest]`, or of the element `number` of its Tuple, over the threads of a column, of
    which those in one warp have it equal."""
    places = [(thread, *rest) for thread in range(0, threads, LANES // columns)]
    calls = [own[place] for place in places]
    return _folded(kind, [hl.Expr(call if number is None else call[number]) for call in calls])


def _folded(kind: str, parts: list[hl.Expr]) -> hl.Expr:
    while len(parts) > 1:
        paired = [combine(kind, a, b) for a, b in zip(parts[::2], parts[1::2])]
        parts = paired + parts[len(paired) * 2 :]
    return parts[0]


def _native(kind: str, of: hl.Type) -> bool:
    return kind in ("max", "min") and bool(of == _SINGLE)
