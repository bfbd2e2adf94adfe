"""Rounds: steps of a CUDA thread that are written out one after another, so that their loads are under way together."""

from __future__ import annotations

from halide_backend.schedule.stage import Loop, Stage
from halide_backend.schedule.steps import Split, Step, Unroll

#: Steps of a thread of a team.
ROUND = 8

#: The same where a team walks along a row and stores, and the number of its steps is computed.
WALKED = 4

#: The same where a thread reduces alone. Blocks of a warp leave each thread the registers for that (measured: column
#: sum of 8192 x 2048 bfloat16 14.4 us with blocks of 128 threads and 16 steps, 13.1 us with 32 and 32).
UNROLLED_ALONE = 32

#: The same where there are so few threads that each waits for its loads alone.
FEW_THREADS, UNROLLED_BY_FEW = 1 << 14, 64

#: The same where the number of steps is computed: those beyond the last whole round have a branch each.
UNROLLED_UNKNOWN = 16


def round_of_team(loop: Loop) -> int:
    """Steps of `loop` that a thread of a team writes out."""
    return _divisor(loop, ROUND)


def round_alone(loop: Loop, threads: int) -> int:
    """Steps of `loop` that each of so many threads writes out that reduce alone."""
    if not loop.fixed:
        return _divisor(loop, UNROLLED_UNKNOWN)
    return _divisor(loop, UNROLLED_BY_FEW if threads <= FEW_THREADS else UNROLLED_ALONE)


def _divisor(loop: Loop, most: int) -> int:
    """The largest number of steps up to `most` that divides `loop`, if it is no less than half of the largest; else,
    and of a computed number, which may be any, a power of two."""
    largest = min(loop.extent, most)
    power = 1 << largest.bit_length() - 1
    if not loop.fixed:
        return power
    return next((d for d in range(largest, largest // 2, -1) if loop.extent % d == 0), power)


def unroll(steps: list[Step], stage: Stage, loop: Loop, count: int) -> None:
    """Write out `count` steps of a reduction's loop."""
    if loop.fixed and loop.extent == count:
        steps.append(Unroll(stage.name, loop.name, update=True))
    elif count > 1:
        inner = f"{loop.name}i"
        steps += [
            Split(stage.name, loop.name, f"{loop.name}o", inner, count, update=True),
            Unroll(stage.name, inner, update=True),
        ]
