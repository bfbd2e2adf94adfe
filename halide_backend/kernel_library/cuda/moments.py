"""Means and sums of squared deviations: of chunks of values, and of what several chunks or threads have together.

Chan, Golub and LeVeque (1983): the variance of two parts is that of each, and what lies between their means. Within a
chunk the values are taken relative to one of them, which is never far from their mean, measured in their deviations:
of n values its square is at most n - 1 times the mean of theirs. So no large mean cancels anything.

The squares come first in a Tuple: Halide stores the elements of its update one after another, and those that follow
see what is stored already. The squares need the mean as it was, the mean needs no squares, and the number of values, if
it is not known, neither.
"""

from __future__ import annotations

from collections.abc import Sequence

import halide as hl

from halide_backend.kernel_library.cuda import intrinsics

#: A sum of squared deviations, and the mean.
Moments = tuple[hl.Expr, hl.Expr]

_ZERO = 0.0


def moments(values: Sequence[hl.Expr], inside: hl.Expr | None = None) -> Moments:
    """The moments of `values`, of which the last one counts only `inside`."""
    count = len(values)
    deviations = [value - values[0] for value in values[1:]]
    if not deviations:
        return hl.f32(_ZERO), values[0]
    part = hl.f32(1 / count)
    if inside is not None:
        deviations[-1] = hl.select(inside, deviations[-1], hl.f32(_ZERO))
        part = hl.select(inside, part, hl.f32(1 / (count - 1)))
    total, squares = deviations[0], deviations[0] * deviations[0]
    for deviation in deviations[1:]:
        total, squares = total + deviation, intrinsics.fma(deviation, deviation, squares)
    mean = total * part
    return squares - total * mean, values[0] + mean


def with_moments(total: hl.FuncRef, values: Sequence[hl.Expr], before: hl.Expr | int) -> hl.Tuple:
    """The moments of a chunk of `values` together with `total`, those of the `before` values before it."""
    squares, mean = hl.Expr(total[0]), hl.Expr(total[1])
    spread, own = moments(values)
    known = hl.cast(hl.Float(32), before)
    share = hl.f32(len(values)) * intrinsics.reciprocal_of_normal(known + hl.f32(len(values)))
    between = own - mean
    return hl.Tuple(
        [
            intrinsics.fma(between * between, known * share, squares + spread),
            intrinsics.fma(between, share, mean),
        ]
    )


def moments_across_threads(own: hl.Func, counts: Sequence[int], rest: Sequence[hl.Expr | hl.Var]) -> list[hl.Expr]:
    """The moments of all values of a column, of which thread number t has `counts[t]` and `own[t, *rest]`."""
    parts = []
    for thread, count in enumerate(counts):
        place = (thread, *rest)
        there = own[place]
        parts.append((count, hl.Expr(there[0]), hl.Expr(there[1])))
    while len(parts) > 1:
        paired = [_of_two(*a, *b) for a, b in zip(parts[::2], parts[1::2])]
        parts = paired + parts[len(paired) * 2 :]
    return list(parts[0][1:])


def no_moments() -> hl.Tuple:
    """The moments of no values, and their number."""
    return hl.Tuple([hl.f32(_ZERO)] * 3)


def with_weighted_moments(
    total: hl.FuncRef, means: Sequence[hl.Expr], squares: Sequence[hl.Expr], weights: Sequence[hl.Expr]
) -> hl.Tuple:
    """The moments of a chunk of parts, and the number of their values, together with `total`. A part has as many values
    as its weight; where that is 0 nothing is known of its mean."""
    known_squares, mean, known = (hl.Expr(total[k]) for k in range(3))
    first = hl.select(weights[0] > 0, means[0], mean)
    count, between, spread = weights[0], hl.f32(_ZERO), squares[0]
    for part, own, weight in zip(means[1:], squares[1:], weights[1:]):
        deviation = hl.select(weight > 0, part - first, hl.f32(_ZERO))
        weighted = weight * deviation
        count, between, spread = count + weight, between + weighted, intrinsics.fma(weighted, deviation, spread + own)
    shift = between * _inverse(count)
    share, apart = count * _inverse(known + count), first + shift - mean
    return hl.Tuple(
        [
            intrinsics.fma(apart * apart, known * share, known_squares + (spread - between * shift)),
            intrinsics.fma(apart, share, mean),
            known + count,
        ]
    )


def weighted_moments_across_threads(
    own: hl.Func, threads: int, rest: Sequence[hl.Expr | hl.Var]
) -> tuple[hl.Expr, ...]:
    """The moments of all values of a column, and their number, of which each of `threads` threads has some."""
    places = [(thread, *rest) for thread in range(threads)]
    parts = [tuple(hl.Expr(own[place][k]) for k in range(3)) for place in places]
    while len(parts) > 1:
        paired = [_of_two_weighted(*a, *b) for a, b in zip(parts[::2], parts[1::2])]
        parts = paired + parts[len(paired) * 2 :]
    return parts[0]


def _of_two_weighted(
    squares: hl.Expr,
    mean: hl.Expr,
    count: hl.Expr,
    other_squares: hl.Expr,
    other_mean: hl.Expr,
    others: hl.Expr,
) -> tuple[hl.Expr, ...]:
    both, apart = count + others, other_mean - mean
    share = others * _inverse(both)
    spread = intrinsics.fma(apart * apart, count * share, squares + other_squares)
    return spread, intrinsics.fma(apart, share, mean), both


def _inverse(count: hl.Expr) -> hl.Expr:
    """1 / `count`, with a step of Newton's: it scales squares that nearly cancel; 0 of no values."""
    rough = intrinsics.reciprocal_of_normal(count)
    exact = intrinsics.fma(intrinsics.fma(-count, rough, hl.f32(1.0)), rough, rough)
    return hl.select(count > 0, exact, hl.f32(_ZERO))


def _of_two(
    count: int, squares: hl.Expr, mean: hl.Expr, others: int, other_squares: hl.Expr, other_mean: hl.Expr
) -> tuple[int, hl.Expr, hl.Expr]:
    """The count and moments of two parts together."""
    both, between = count + others, other_mean - mean
    return (
        both,
        intrinsics.fma(between * between, hl.f32(count * others / both), squares + other_squares),
        intrinsics.fma(between, hl.f32(others / both), mean),
    )
